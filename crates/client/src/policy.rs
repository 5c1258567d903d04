//! Policies: what a session may see, reach, use and know.

use crate::call::{Call, Client};
use crate::sessions::session_path;
use crate::{ClientError, types};
use hyper::Method;
use types::{Policy, PolicyView, ServerPolicy};

impl Client {
    pub async fn policy(&self, session: &str) -> Result<PolicyView, ClientError> {
        self.value(&Call::get(format!("{}/policy", session_path(session)))).await
    }

    /// Replaces the document; with `known`, only the version of that number.
    pub async fn set_policy(
        &self,
        session: &str,
        policy: &Policy,
        known: Option<u64>,
    ) -> Result<PolicyView, ClientError> {
        let known = known.map(|version| ("if-match", format!("\"{version}\"")));
        let call = Call::mutating(Method::PUT, format!("{}/policy", session_path(session)))?.json(policy)?;
        let call = call.headers(known.into_iter().collect());
        self.value(&call).await
    }

    /// What one's own sessions are given, and may have at most.
    pub async fn server_policy(&self) -> Result<ServerPolicy, ClientError> {
        self.value(&Call::get("/v1/policy")).await
    }
}
