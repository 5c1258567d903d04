//! Tokens: made, listed, revoked.

use crate::ClientError;
use crate::call::{Call, Client};
use crate::types::{CreateToken, NewToken, TokenList};
use crate::url::segment;
use hyper::Method;

impl Client {
    /// The only time that the token's secret is told.
    pub async fn create_token(&self, request: &CreateToken) -> Result<NewToken, ClientError> {
        self.value(&Call::post("/v1/tokens")?.json(request)?).await
    }

    pub async fn tokens(&self) -> Result<TokenList, ClientError> {
        self.value(&Call::get("/v1/tokens")).await
    }

    pub async fn revoke_token(&self, id: &str) -> Result<(), ClientError> {
        let call = Call::mutating(Method::DELETE, format!("/v1/tokens/{}", segment(id)))?;
        self.answer(&call).await.map(drop)
    }
}
