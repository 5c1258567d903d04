//! Secrets: set, listed, removed, and never read.

use crate::ClientError;
use crate::call::{Call, Client};
use crate::sessions::session_path;
use crate::types::{Rotated, SecretInfo, SecretList, SetSecret};
use crate::url::{query, segment};
use hyper::Method;
use serde::Serialize;

/// Whose a secret is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretOf {
    Global,
    /// The caller, or for an admin this owner.
    User(Option<String>),
    Session(String),
}

#[derive(Serialize)]
struct Wanted<'w> {
    scope: Option<&'w str>,
    owner: Option<&'w str>,
}

fn path(of: &SecretOf, name: &str) -> String {
    let wanted = |scope, owner| query(&Wanted { scope: Some(scope), owner });
    match of {
        SecretOf::Global => format!("/v1/secrets/{}{}", segment(name), wanted("global", None)),
        SecretOf::User(owner) => {
            format!("/v1/secrets/{}{}", segment(name), wanted("user", owner.as_deref()))
        }
        SecretOf::Session(id) => format!("{}/secrets/{}", session_path(id), segment(name)),
    }
}

impl Client {
    pub async fn set_secret(
        &self,
        of: &SecretOf,
        name: &str,
        value: &SetSecret,
    ) -> Result<SecretInfo, ClientError> {
        self.value(&Call::mutating(Method::PUT, path(of, name))?.json(value)?).await
    }

    /// The caller's own and the global ones.
    pub async fn secrets(&self, owner: Option<&str>) -> Result<SecretList, ClientError> {
        self.value(&Call::get(format!("/v1/secrets{}", query(&Wanted { scope: None, owner })))).await
    }

    pub async fn session_secrets(&self, id: &str) -> Result<SecretList, ClientError> {
        self.value(&Call::get(format!("{}/secrets", session_path(id)))).await
    }

    pub async fn remove_secret(&self, of: &SecretOf, name: &str) -> Result<(), ClientError> {
        self.answer(&Call::mutating(Method::DELETE, path(of, name))?).await.map(drop)
    }

    /// A new master key, under which everything is sealed again.
    pub async fn rotate_master_key(&self) -> Result<Rotated, ClientError> {
        self.value(&Call::post("/v1/secrets/rotate")?).await
    }
}
