//! The way out for programs that know of no proxy: packets of a TUN device in the room, turned into the same judged
//! connections.
//!
//! The room has one interface with one address and a default route. Everything its programs send comes here as
//! packets, in the host's world: connections end in a small TCP stack ([`stack`]), each is judged and dialled before the
//! program hears that it stands, and questions about names are answered here ([`dns`]) with addresses that stand for
//! names ([`pool`]). Nothing else is carried.
//!
//! | packet | what becomes of it |
//! |---|---|
//! | TCP to an address of the pool | judged, dialled and compared (TLS, Host) by the name that it stands for |
//! | TCP to another address | judged as that address, as the policy's cidrs or an open network say |
//! | TCP and UDP to port 53, of whatever address | a question about names, answered here |
//! | other UDP | "administratively prohibited", counted as a denial |
//! | everything else, IPv6 and fragments too | dropped and counted |

mod conduit;
mod device;
mod dns;
#[doc(hidden)]
pub mod packet;
mod pool;
mod stack;

use crate::session::SessionNet;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The address of the room's end of the link.
pub const ROOM: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// The address of our end: whom a room's `resolv.conf` names.
pub const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The size of packets on the link. No wire is behind it, so it is as large as it may be: fewer packets for the same
/// bytes.
pub const MTU: u16 = 65_520;

/// Serves a room's packets until its device is gone. Dropping the future cuts every connection: no packet is answered
/// any more.
///
/// `tun` is the descriptor of a TUN device without packet information. Its interface, in the room, has the address
/// [`ROOM`], packets of at most [`MTU`], and the default route.
pub async fn serve_tun(tun: OwnedFd, session: Arc<SessionNet>) -> io::Result<()> {
    rustix::io::ioctl_fionbio(&tun, true)?;
    let tun = workroom_sys::readiness::watch_socket(tun)?;
    stack::Stack::new(tun, session).run().await
}
