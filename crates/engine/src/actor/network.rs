//! A session's network: wired when its room stands, changed while it runs, gone with the room.
//!
//! ```text
//!   Off ──policy, room──▶ Wired ──policy──▶ Wired, with other rules
//!    ▲                      │
//!    └── policy off, room gone ──┘
//! ```

use super::Actor;
use crate::network::{WISH, give_proxy};
use crate::policy;
use crate::room::gone;
use serde_json::json;
use std::os::fd::AsFd;
use workroom_proto::{Answer, Question};
use workroom_room::Wires;
use workroom_types::{
    CommandSpec, Layer, LayerState, NetworkMode, NetworkPolicy, Policy, Problem, ProblemCode,
};

/// A room's way out.
pub(super) struct Wired {
    /// Of the proxy, on the room's loopback.
    port: u16,
    /// Why there is none for programs that know of no proxy.
    no_device: Option<String>,
}

impl Actor {
    /// Gives the room that stands the network of the policy that holds. A room without one costs nothing here. One that
    /// cannot be given leaves the room with loopback alone, which is told and recorded.
    pub(super) async fn connect_network(&mut self) {
        let effective = policy::effective(&self.shared, &self.row.session);
        let network = effective.network.clone().unwrap_or_default();
        if self.network.is_some() || network.mode == NetworkMode::Off {
            return;
        }
        if let Some(held) = &mut self.row.session.room_policy {
            held.network = effective.network;
        }
        match self.wire(&network).await {
            Ok(wired) => self.network = Some(wired),
            Err(problem) => {
                let reason = problem.to_string();
                tracing::warn!(session = %self.row.session.id, reason, "a room has no network");
                let entry = self.entry("network.failed", "server", json!({ "reason": reason }));
                self.shared.store.note(entry).await;
                let state = LayerState::Enforced(format!("network namespace, loopback only: {reason}"));
                self.row.session.enforced.set(Layer::NetNs, state);
                return;
            }
        }
        self.say_network(network.mode);
    }

    async fn wire(&mut self, network: &NetworkPolicy) -> Result<Wired, Problem> {
        let mut namespaces = match self.ask(Question::Namespaces).await? {
            (Answer::Namespaces, fds) if fds.len() == 2 => fds,
            (Answer::Failed { why }, _) => return Err(failed(&why)),
            _ => return Err(gone("the room does not answer as it should")),
        };
        let made = crate::blocking(move || {
            let (net, user) = (namespaces.pop(), namespaces.pop());
            let (Some(user), Some(net)) = (user, net) else {
                return Err(failed("its namespaces are missing"));
            };
            workroom_room::wire(user.as_fd(), net.as_fd(), WISH).map_err(|error| failed(&error.to_string()))
        });
        let wires: Wires = made.await?;
        let wired = Wired { port: wires.port, no_device: wires.tun.as_ref().err().cloned() };
        self.shared.networks.serve(&self.row.session.id, network, wires).await?;
        Ok(wired)
    }

    /// Lets go of the room's network, if it has one.
    pub(super) async fn disconnect_network(&mut self) {
        if self.network.take().is_some() {
            self.shared.networks.stop(&self.row.session.id).await;
        }
    }

    /// Brings the network of a room that runs to what holds now.
    pub(super) async fn change_network(&mut self, held: &mut Policy, wanted: &Policy) {
        if held.network == wanted.network {
            return;
        }
        let network = wanted.network.clone().unwrap_or_default();
        match (network.mode, &self.network) {
            (NetworkMode::Off, _) => {
                self.disconnect_network().await;
                self.row.session.enforced.set(Layer::NetNs, LayerState::Enforced(LOOPBACK_ONLY.into()));
            }
            (mode, Some(_)) => {
                self.shared.networks.rules(&self.row.session.id, &network).await;
                self.say_network(mode);
            }
            (_, None) => {
                Box::pin(self.connect_network()).await;
                if self.network.is_none() {
                    // It waits for the next room.
                    return;
                }
            }
        }
        held.network.clone_from(&wanted.network);
    }

    /// The operator's file may say something else than when the room was wired: a ceiling that came down cuts.
    pub(super) async fn network_again(&mut self) {
        let wanted = policy::effective(&self.shared, &self.row.session);
        let is_held = self.row.session.room_policy.as_ref().is_none_or(|held| held.network == wanted.network);
        if self.room.is_some() && !is_held {
            self.policy_changed().await;
            self.publish();
        }
    }

    /// What is really in force, in the session's record.
    fn say_network(&mut self, mode: NetworkMode) {
        let Some(wired) = &self.network else { return };
        let mode = match mode {
            NetworkMode::Off => "off",
            NetworkMode::Allow => "allow",
            NetworkMode::Open => "open",
        };
        let way = match &wired.no_device {
            None => "proxy and TUN device".to_owned(),
            Some(why) => format!("proxy only ({why})"),
        };
        let by = format!("network namespace; {mode}: {way}, judged outside the room");
        self.row.session.enforced.set(Layer::NetNs, LayerState::Enforced(by));
    }

    /// What programs are told of the proxy, in a room that has one.
    pub(super) fn tell_of_proxy(&self, spec: &mut CommandSpec) {
        if let Some(wired) = &self.network {
            give_proxy(spec, wired.port);
        }
    }
}

/// As the room itself says when it is built.
const LOOPBACK_ONLY: &str = "network namespace, loopback only";

fn failed(why: &str) -> Problem {
    Problem::new(ProblemCode::RoomSetup, format!("the room's network cannot be made: {why}"), "")
}
