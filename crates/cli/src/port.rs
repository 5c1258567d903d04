//! `workroom port`: what listens in a session's room, what of it is published, and links to previews.

use crate::output::{self, clean};
use crate::remote::{Failure, perform};
use crate::table::Table;
use crate::which;
use std::process::ExitCode;
use workroom_client::Client;
use workroom_types::{PortList, PublishPort, PublishedPort};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  workroom port web ls\n  workroom port web publish 8080\n  workroom port web open 8080"
)]
pub(crate) struct Options {
    /// The session: its id, the beginning of it, or its name
    #[arg(value_name = "SESSION")]
    session: String,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// List what listens in the room, and what is published
    #[command(after_help = "Example:\n  workroom port web ls")]
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Let the host's loopback and a preview lead to a port of the room
    #[command(after_help = "Example:\n  workroom port web publish 8080 --host-port 18080")]
    Publish {
        /// A port of the room
        #[arg(value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
        port: u16,
        /// Where the host listens, on 127.0.0.1 [default: a port that is free]
        #[arg(long, value_name = "PORT", value_parser = host_port)]
        host_port: Option<HostPort>,
        /// Let everybody who can reach the server see the preview
        #[arg(long)]
        public: bool,
        /// A word for it
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// End that, and every connection that is open
    #[command(after_help = "Example:\n  workroom port web unpublish 8080")]
    Unpublish {
        /// Ports of the room
        #[arg(value_name = "PORT", required = true, value_parser = clap::value_parser!(u16).range(1..))]
        ports: Vec<u16>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a link that opens the preview in a browser: once, within a minute
    #[command(after_help = "Example:\n  xdg-open \"$(workroom port web open 8080)\"")]
    Open {
        /// A port of the room that is published
        #[arg(value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
        port: u16,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// A number, or whichever is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostPort {
    Auto,
    Number(u16),
}

fn host_port(text: &str) -> Result<HostPort, String> {
    match (text, text.parse()) {
        ("auto", _) => Ok(HostPort::Auto),
        (_, Ok(port @ 1025..)) => Ok(HostPort::Number(port)),
        _ => Err("it is `auto`, or 1025 to 65535".to_owned()),
    }
}

pub(crate) fn run(options: Options) -> ExitCode {
    let json = match &options.verb {
        Verb::Ls { json } | Verb::Publish { json, .. } | Verb::Unpublish { json, .. } => *json,
        Verb::Open { json, .. } => *json,
    };
    perform(json, async |client| {
        let id = which::session(&client, &options.session).await?;
        match options.verb {
            Verb::Ls { .. } => list(&client, &id, json).await?,
            Verb::Publish { port, host_port, public, name, .. } => {
                let host_port = host_port.and_then(|chosen| match chosen {
                    HostPort::Auto => None,
                    HostPort::Number(port) => Some(port),
                });
                let request = PublishPort { port, host_port, public, name };
                let published = client.publish_port(&id, &request).await?;
                if json {
                    output::json(&published)?;
                } else {
                    output::line(&format!("127.0.0.1:{}  {}", published.host_port, published.preview))?;
                }
            }
            Verb::Unpublish { ports, .. } => {
                for port in ports {
                    client.unpublish_port(&id, port).await?;
                    if !json {
                        output::line(&format!("{port}  unpublished"))?;
                    }
                }
            }
            Verb::Open { port, .. } => {
                let link = client.preview_link(&id, port).await?;
                if json { output::json(&link)? } else { output::line(&link.url)? }
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn list(client: &Client, id: &str, json: bool) -> Result<(), Failure> {
    let list = client.ports(id).await?;
    if json { output::json(&list) } else { output::text(&table(&list)) }
}

/// A line for each that listens, and for each that is published though nothing listens.
fn table(list: &PortList) -> String {
    let mut table = Table::new(&["port", "address", "process", "published", "preview"]);
    let published = |port: u16| list.published.iter().find(|published| published.port == port);
    for listener in &list.listening {
        let process = match (listener.pid, &listener.process) {
            (Some(pid), Some(name)) => format!("{} ({pid})", clean(name)),
            _ => "?".to_owned(),
        };
        let (at, preview) = published(listener.port).map_or_else(none, shown);
        table.row([&listener.port.to_string(), &listener.address, &process, &at, &preview]);
    }
    let is_silent = |one: &&PublishedPort| list.listening.iter().all(|listener| listener.port != one.port);
    for silent in list.published.iter().filter(is_silent) {
        let (at, preview) = shown(silent);
        table.row([&silent.port.to_string(), "-", "-", &at, &preview]);
    }
    table.to_string()
}

fn none() -> (String, String) {
    ("-".to_owned(), "-".to_owned())
}

fn shown(published: &PublishedPort) -> (String, String) {
    let at = format!("127.0.0.1:{}", published.host_port);
    let at = if published.listening { at } else { format!("{at} (not listening)") };
    let public = if published.public { " (public)" } else { "" };
    (at, format!("{}{public}", published.preview))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_port_is_a_number_or_any() {
        assert_eq!(host_port("auto"), Ok(HostPort::Auto));
        assert_eq!(host_port("1025"), Ok(HostPort::Number(1025)));
        for wrong in ["", "80", "1024", "65536", "-1", "any"] {
            assert!(host_port(wrong).is_err(), "{wrong}");
        }
    }
}
