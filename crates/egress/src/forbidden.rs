//! What no policy opens: the addresses on which the server that rooms belong to listens.

use crate::dial::is_own;
use std::net::{IpAddr, SocketAddr};
use std::sync::{PoisonError, RwLock};

/// Shared by all sessions of a server; it changes as ports are published.
#[derive(Debug, Default)]
pub struct Forbidden(RwLock<Vec<SocketAddr>>);

impl Forbidden {
    pub fn set(&self, addresses: Vec<SocketAddr>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    /// Whether a connection to this address would reach one of them.
    pub fn has(&self, address: IpAddr, port: u16) -> bool {
        let address = address.to_canonical();
        let listeners = self.0.read().unwrap_or_else(PoisonError::into_inner);
        listeners.iter().filter(|listener| listener.port() == port).any(|listener| {
            let at = listener.ip().to_canonical();
            // Dialling no address in particular reaches this machine's loopback; listening on none, all that it has.
            at == address
                || at.is_unspecified()
                    && (address.is_loopback() || address.is_unspecified() || is_own(address))
                || address.is_unspecified() && at.is_loopback()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_that_leads_to_a_listener_is_it() {
        let forbidden = Forbidden::default();
        assert!(!forbidden.has([127, 0, 0, 1].into(), 7300));
        forbidden.set(vec!["127.0.0.1:7300".parse().unwrap(), "[::]:7301".parse().unwrap()]);
        for (address, port) in [
            ("127.0.0.1", 7300),
            ("::ffff:127.0.0.1", 7300),
            ("0.0.0.0", 7300),
            ("::", 7300),
            ("127.9.9.9", 7301),
            ("::1", 7301),
            ("0.0.0.0", 7301),
        ] {
            assert!(forbidden.has(address.parse().unwrap(), port), "{address} {port}");
        }
        for (address, port) in [("127.0.0.2", 7300), ("127.0.0.1", 7302), ("192.0.2.1", 7301)] {
            assert!(!forbidden.has(address.parse().unwrap(), port), "{address} {port}");
        }
    }
}
