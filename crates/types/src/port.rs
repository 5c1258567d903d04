//! Ports of a session's room: what listens on them, and those that are published on the host.

use crate::{ListeningPort, Timestamp};
use serde::{Deserialize, Serialize};

/// A port of a room to be published.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PublishPort {
    /// Of the room; nothing need listen on it yet.
    pub port: u16,
    /// Where the host listens, on 127.0.0.1: 1025 to 65535. One that is free unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_port: Option<u16>,
    /// Whether its preview is for everybody who can reach the server.
    #[serde(default)]
    pub public: bool,
    /// The caller's own word for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A port of a room that is published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PublishedPort {
    /// Of the room.
    pub port: u16,
    /// Of the host, on 127.0.0.1.
    pub host_port: u16,
    /// Whether the host listens there now; `reason` says why not.
    pub listening: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub public: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub published: Timestamp,
    /// Connections that are open now, those of its preview included.
    pub connections: u64,
    /// Connections that were turned away because the session had too many.
    pub refused: u64,
    /// Where its preview is, for whoever has access.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub preview: String,
}

/// A session's ports.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortList {
    /// What something in the room listens on now.
    pub listening: Vec<ListeningPort>,
    pub published: Vec<PublishedPort>,
}

/// A link that opens a preview, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PreviewLink {
    pub url: String,
    /// It has to be opened before.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub expires: Timestamp,
}
