//! The walls of a room, by name, and what is known about each one on this machine.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

/// One wall. The names are what `--require`, `--allow-missing` and reports use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Layer {
    UserNs,
    MountNs,
    PidNs,
    NetNs,
    IpcNs,
    UtsNs,
    CgroupNs,
    /// A uid range of its own for each room; needs a privileged host.
    UidRange,
    Caps,
    Nnp,
    Seccomp,
    Landlock,
    /// Landlock's scopes: no signal and no abstract socket leaves the commands' domain (ABI 6).
    Scope,
    /// `/proc` read-only, with what can hurt masked.
    Proc,
    /// The guest and the launcher cannot be read or traced from inside.
    Dumpable,
    Memory,
    Pids,
    Cpu,
    Disk,
}

impl Layer {
    pub const ALL: [Layer; 19] = [
        Layer::UserNs,
        Layer::MountNs,
        Layer::PidNs,
        Layer::NetNs,
        Layer::IpcNs,
        Layer::UtsNs,
        Layer::CgroupNs,
        Layer::UidRange,
        Layer::Caps,
        Layer::Nnp,
        Layer::Seccomp,
        Layer::Landlock,
        Layer::Scope,
        Layer::Proc,
        Layer::Dumpable,
        Layer::Memory,
        Layer::Pids,
        Layer::Cpu,
        Layer::Disk,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Layer::UserNs => "userns",
            Layer::MountNs => "mountns",
            Layer::PidNs => "pidns",
            Layer::NetNs => "netns",
            Layer::IpcNs => "ipcns",
            Layer::UtsNs => "utsns",
            Layer::CgroupNs => "cgroupns",
            Layer::UidRange => "uidrange",
            Layer::Caps => "caps",
            Layer::Nnp => "nnp",
            Layer::Seccomp => "seccomp",
            Layer::Landlock => "landlock",
            Layer::Scope => "scope",
            Layer::Proc => "proc",
            Layer::Dumpable => "dumpable",
            Layer::Memory => "memory",
            Layer::Pids => "pids",
            Layer::Cpu => "cpu",
            Layer::Disk => "disk",
        }
    }

    pub fn from_name(name: &str) -> Option<Layer> {
        Layer::ALL.into_iter().find(|layer| layer.name() == name)
    }

    /// Whether a room refuses to start without it unless the caller allows its absence.
    ///
    /// The others need privileges, cgroups or a kernel that an ordinary user may not have; what a room lacks
    /// of them its report says, and `require` makes any of them a condition.
    pub fn required_by_default(self) -> bool {
        !matches!(self, Layer::UidRange | Layer::Memory | Layer::Pids | Layer::Cpu | Layer::Scope)
    }
}

/// A set of layers, small enough to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LayerSet(u32);

impl LayerSet {
    pub const EMPTY: LayerSet = LayerSet(0);

    pub fn with(self, layer: Layer) -> Self {
        Self(self.0 | 1 << layer as u8)
    }

    pub fn contains(self, layer: Layer) -> bool {
        self.0 & 1 << layer as u8 != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Layer> {
        Layer::ALL.into_iter().filter(move |layer| self.contains(*layer))
    }
}

impl FromIterator<Layer> for LayerSet {
    fn from_iter<I: IntoIterator<Item = Layer>>(layers: I) -> Self {
        layers.into_iter().fold(Self::EMPTY, LayerSet::with)
    }
}

/// How one layer stands in a particular room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerState {
    /// In force, by this mechanism.
    Enforced(String),
    /// A weaker thing stands in its place, and this is how it is weaker.
    Partial(String),
    /// Not in force, and why.
    Missing(String),
}

/// What is really in force in a room: one entry for each layer, in the order of [`Layer::ALL`].
///
/// In JSON an object: `{"seccomp": {"state": "enforced", "by": "allow-list"}, …}`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Enforced(pub Vec<(Layer, LayerState)>);

/// How the disk of a room that writes to memory is limited.
pub const DISK_IN_MEMORY: &str = "tmpfs size and inodes";

/// A layer's state as JSON has it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "state")]
enum Told {
    Enforced { by: String },
    Partial { by: String },
    Missing { why: String },
}

impl From<&LayerState> for Told {
    fn from(state: &LayerState) -> Told {
        match state.clone() {
            LayerState::Enforced(by) => Told::Enforced { by },
            LayerState::Partial(by) => Told::Partial { by },
            LayerState::Missing(why) => Told::Missing { why },
        }
    }
}

impl From<Told> for LayerState {
    fn from(told: Told) -> LayerState {
        match told {
            Told::Enforced { by } => LayerState::Enforced(by),
            Told::Partial { by } => LayerState::Partial(by),
            Told::Missing { why } => LayerState::Missing(why),
        }
    }
}

impl Serialize for Enforced {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer
                .collect_map(self.0.iter().map(|(layer, state)| (layer.name(), Told::from(state))));
        }
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Enforced {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Enforced, D::Error> {
        if !deserializer.is_human_readable() {
            return Vec::deserialize(deserializer).map(Enforced);
        }
        let told = BTreeMap::<String, Told>::deserialize(deserializer)?;
        // What a newer server has and we do not know is left out.
        let known = told.into_iter().filter_map(|(name, told)| Some((Layer::from_name(&name)?, told.into())));
        let mut enforced = Enforced(known.collect());
        enforced.0.sort_by_key(|(layer, _)| *layer as u8);
        Ok(enforced)
    }
}

impl Enforced {
    pub fn set(&mut self, layer: Layer, state: LayerState) {
        match self.0.iter_mut().find(|(known, _)| *known == layer) {
            Some((_, known)) => *known = state,
            None => self.0.push((layer, state)),
        }
    }

    pub fn get(&self, layer: Layer) -> Option<&LayerState> {
        self.0.iter().find(|(known, _)| *known == layer).map(|(_, state)| state)
    }

    pub fn holds(&self, layer: Layer) -> bool {
        matches!(self.get(layer), Some(LayerState::Enforced(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_enforced_is_an_object_in_json_and_comes_back() {
        let mut enforced = Enforced::default();
        enforced.set(Layer::Seccomp, LayerState::Enforced("allow-list".into()));
        enforced.set(Layer::Cpu, LayerState::Missing("no cgroup".into()));
        let text = serde_json::to_string(&enforced).unwrap();
        assert_eq!(
            text,
            r#"{"seccomp":{"state":"enforced","by":"allow-list"},"cpu":{"state":"missing","why":"no cgroup"}}"#
        );
        assert_eq!(serde_json::from_str::<Enforced>(&text).unwrap(), enforced);
    }

    #[test]
    fn every_layer_is_found_by_its_name_and_fits_the_set() {
        for layer in Layer::ALL {
            assert_eq!(Layer::from_name(layer.name()), Some(layer));
            let set = LayerSet::EMPTY.with(layer);
            assert_eq!(set.iter().collect::<Vec<_>>(), [layer]);
        }
        assert_eq!(LayerSet::from_iter(Layer::ALL).iter().count(), Layer::ALL.len());
    }
}
