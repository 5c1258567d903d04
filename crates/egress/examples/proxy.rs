//! A proxy with a policy, to try programs with.
//!
//! ```sh
//! cargo run -p workroom-egress --example proxy -- '{"mode": "allow", "domains": ["example.com"]}'
//! ```
//!
//! Denials are printed as they happen; at ctrl-C the log and the allow-list that would have been needed.

use workroom_egress::{DenialEvent, Limits, Policy, ResolverSettings, SessionNet, Watcher, serve_connection};

struct Printer;

impl Watcher for Printer {
    fn denied(&self, event: &DenialEvent) {
        println!("{} ({}×)", event.detail, event.count);
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let text = std::env::args().nth(1).unwrap_or_else(|| "\"open\"".into());
    let policy = Policy::from_json(&text)?;
    let session = SessionNet::new(policy, ResolverSettings::default(), Limits::default(), Box::new(Printer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    println!("export http_proxy=http://{address} https_proxy=http://{address} all_proxy=socks5h://{address}");
    loop {
        tokio::select! {
            accepted = listener.accept() => drop(tokio::spawn(serve_connection(accepted?.0, session.clone()))),
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    for entry in session.log() {
        println!("{}", serde_json::to_string(&entry)?);
    }
    println!("{}", serde_json::to_string_pretty(&session.learn())?);
    Ok(())
}
