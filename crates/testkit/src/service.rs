//! Services under test, in as few words as a test is read with.

use crate::session::TestSession;
use crate::wait::{eventually, within};
use workroom_client::types::{Problem, Service, ServiceSpec, ServiceState};

impl TestSession {
    /// A service, said as the API has it: as it is once it was ready or has failed.
    pub async fn service(&self, name: &str, request: serde_json::Value) -> Service {
        let put = self.put_service(name, request, true).await;
        put.unwrap_or_else(|problem| panic!("the service {name}: {problem}"))
    }

    /// The same, without waiting for it.
    pub async fn service_at_once(&self, name: &str, request: serde_json::Value) -> Service {
        let put = self.put_service(name, request, false).await;
        put.unwrap_or_else(|problem| panic!("the service {name}: {problem}"))
    }

    /// Why a service is not taken.
    pub async fn refuses_service(&self, name: &str, request: serde_json::Value) -> Problem {
        let put = self.put_service(name, request, true).await;
        put.expect_err("refused")
    }

    async fn put_service(
        &self,
        name: &str,
        request: serde_json::Value,
        wait: bool,
    ) -> Result<Service, Problem> {
        let spec: ServiceSpec = serde_json::from_value(request).expect("a service's fields");
        let put = within("a service", self.client().put_service((&self.id, name), &spec, wait)).await;
        match put {
            Ok((service, _)) => Ok(service),
            Err(error) => Err(error.problem().unwrap_or_else(|| panic!("{error}")).clone()),
        }
    }

    pub async fn known_service(&self, name: &str) -> Service {
        within("the service", self.client().service(&self.id, name)).await.expect("the service")
    }

    pub async fn stop_service(&self, name: &str) -> Service {
        within("its end", self.client().stop_service(&self.id, name, false)).await.expect("stopped")
    }

    pub async fn start_service(&self, name: &str) -> Service {
        within("its start", self.client().start_service(&self.id, name, true)).await.expect("started")
    }

    /// The service as soon as it is in this state.
    pub async fn service_is(&self, name: &str, state: ServiceState) -> Service {
        eventually(async || match self.known_service(name).await {
            service if service.state == state => Ok(()),
            service => Err(format!("{service:?}")),
        })
        .await;
        self.known_service(name).await
    }

    /// What the journal says of a service, in its order: the kinds, without what they have in common.
    pub async fn service_story(&self, name: &str) -> Vec<String> {
        let entries = self.journal().await.into_iter();
        let told = entries.filter(|entry| entry.body["name"] == name);
        told.filter_map(|entry| entry.kind.strip_prefix("service.").map(str::to_owned)).collect()
    }
}
