//! Whether a call that brought no answer is made again, and for how long.

use crate::call::Call;
use crate::{ClientError, Endpoint};
use std::time::{Duration, Instant};
use workroom_types::ProblemCode;

/// How often a request is made when the connection breaks before its answer.
const TRIES: u32 = 2;
/// How long a server that went away may take to come back, for calls that wait for it. Its rooms go on meanwhile.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between the tries, when a new connection broke: the server may be coming back.
const PAUSE: Duration = Duration::from_millis(100);

/// Why a try brought no answer.
pub(crate) enum Fault {
    /// The connection broke. `idle`: it had been kept from an earlier call, and most likely was closed meanwhile.
    Broke { idle: bool, why: String },
    /// There was no connection, or the answer is a problem.
    Final(ClientError),
}

/// The tries of one call. It may be made again: it changes nothing, or its idempotency key makes it one effect.
pub(crate) struct Tries<'a> {
    call: &'a Call,
    place: &'a Endpoint,
    made: u32,
    /// When a try was cut off first, and why. What the server did of that is not known.
    broke: Option<(Instant, String)>,
}

impl<'a> Tries<'a> {
    pub(crate) fn of(call: &'a Call, place: &'a Endpoint) -> Tries<'a> {
        let broke = call.broke.clone().map(|why| (Instant::now(), why));
        Tries { call, place, made: 0, broke }
    }

    pub(crate) fn is_first(&self) -> bool {
        self.made == 0 && self.broke.is_none()
    }

    /// Returns when the call is to be made again.
    pub(crate) async fn another(&mut self, fault: Fault) -> Result<(), ClientError> {
        self.made += 1;
        let mut at_once = false;
        let error = match fault {
            Fault::Broke { idle, why } => {
                at_once = idle && self.broke.is_none();
                self.broke.get_or_insert((Instant::now(), why));
                self.broken()
            }
            Fault::Final(error) if !self.is_passing(&error) => return Err(error),
            Fault::Final(error) => {
                self.broke.get_or_insert_with(|| (Instant::now(), error.to_string()));
                if matches!(error, ClientError::Problem(_)) { error } else { self.broken() }
            }
        };
        if self.is_over() {
            return Err(error);
        }
        if !at_once {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Whether a server that comes back may answer otherwise. One that was never there is not waited for.
    pub(crate) fn is_passing(&self, error: &ClientError) -> bool {
        let (patient, began) = (self.call.patient.is_some(), self.broke.is_some());
        match error {
            ClientError::NotRunning { .. } => began,
            ClientError::Transport(_) => began && patient,
            ClientError::Problem(problem) => {
                patient && (problem.code == ProblemCode::ShuttingDown || began && problem.status == 503)
            }
            ClientError::Protocol(_) => false,
        }
    }

    fn is_over(&self) -> bool {
        match (self.call.patient, &self.broke) {
            (Some(_), Some((since, _))) => since.elapsed() >= PATIENCE,
            _ => self.made >= TRIES,
        }
    }

    fn broken(&self) -> ClientError {
        let why = self.broke.as_ref().map_or("", |(_, why)| why.as_str());
        let hint = self.call.patient.unwrap_or("look at the server's log, then ask again");
        let name = self.call.name();
        ClientError::Transport(format!(
            "the connection to {} broke before {name} was answered: {why}; {hint}",
            self.place
        ))
    }
}
