//! Pools of slots: set, shown, deleted; slots acquired, extended, reset and released.

use crate::call::{Call, Client, decode};
use crate::url::{query, segment};
use crate::{ClientError, types};
use hyper::{Method, StatusCode};
use types::{AcquireSlot, ExtendLease, Lease, Pool, PoolList, PoolOwner, PoolSpec, ReleaseSlot, Released};

/// A pool of one's own, or with an admin token somebody else's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolName<'a> {
    pub owner: Option<&'a str>,
    pub name: &'a str,
}

impl<'a> From<&'a str> for PoolName<'a> {
    fn from(name: &'a str) -> PoolName<'a> {
        PoolName { owner: None, name }
    }
}

impl PoolName<'_> {
    fn path(self, verb: &str) -> String {
        let owner = PoolOwner { owner: self.owner.map(str::to_owned) };
        format!("/v1/pools/{}{verb}{}", segment(self.name), query(&owner))
    }
}

impl Client {
    /// Makes a pool, or changes one; and whether it is new.
    pub async fn set_pool<'a>(
        &self,
        pool: impl Into<PoolName<'a>>,
        spec: &PoolSpec,
    ) -> Result<(Pool, bool), ClientError> {
        let answer = self.answer(&Call::mutating(Method::PUT, pool.into().path(""))?.json(spec)?).await?;
        Ok((decode("the pool", &answer.body)?, answer.status == StatusCode::CREATED))
    }

    pub async fn pools(&self, owner: Option<&str>) -> Result<PoolList, ClientError> {
        let owner = PoolOwner { owner: owner.map(str::to_owned) };
        self.value(&Call::get(format!("/v1/pools{}", query(&owner)))).await
    }

    pub async fn pool<'a>(&self, pool: impl Into<PoolName<'a>>) -> Result<Pool, ClientError> {
        self.value(&Call::get(pool.into().path(""))).await
    }

    pub async fn delete_pool<'a>(&self, pool: impl Into<PoolName<'a>>) -> Result<(), ClientError> {
        self.answer(&Call::mutating(Method::DELETE, pool.into().path(""))?).await.map(drop)
    }

    pub async fn acquire<'a>(
        &self,
        pool: impl Into<PoolName<'a>>,
        request: &AcquireSlot,
    ) -> Result<Lease, ClientError> {
        self.value(&Call::post(pool.into().path("/acquire"))?.json(request)?).await
    }

    /// Whether the trajectory had one.
    pub async fn release<'a>(
        &self,
        pool: impl Into<PoolName<'a>>,
        trajectory: &str,
    ) -> Result<bool, ClientError> {
        let request = ReleaseSlot { trajectory: trajectory.to_owned() };
        let released: Released =
            self.value(&Call::post(pool.into().path("/release"))?.json(&request)?).await?;
        Ok(released.released)
    }

    pub async fn extend<'a>(
        &self,
        pool: impl Into<PoolName<'a>>,
        request: &ExtendLease,
    ) -> Result<Lease, ClientError> {
        self.value(&Call::post(pool.into().path("/extend"))?.json(request)?).await
    }

    /// The slot that the trajectory has, as new: with another session.
    pub async fn reset_slot<'a>(
        &self,
        pool: impl Into<PoolName<'a>>,
        trajectory: &str,
    ) -> Result<Lease, ClientError> {
        let request = ReleaseSlot { trajectory: trajectory.to_owned() };
        self.value(&Call::post(pool.into().path("/reset"))?.json(&request)?).await
    }
}
