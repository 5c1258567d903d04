//! Programs that people use, with the usual proxy variables, against real servers.

mod support;

use serde_json::json;
use std::process::{Command, Output, Stdio};
use support::tls::TlsServer;
use support::{Server, World, has, run};

fn rules() -> serde_json::Value {
    json!({"mode": "allow", "domains": ["a.test"], "cidrs": ["127.82.0.0/16"]})
}

/// Runs a program with nothing but the proxy in its environment.
async fn with_proxy(world: &World, scheme: &str, program: &str, arguments: &[&str]) -> Output {
    let proxy = format!("{scheme}://{}", world.proxy);
    let mut command = Command::new(program);
    command.args(arguments).env_clear().env("PATH", std::env::var_os("PATH").unwrap()).stdin(Stdio::null());
    for variable in ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env(variable, &proxy);
    }
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn curl_gets_pages_with_and_without_tls() {
    if !has("curl") || !has("openssl") {
        return;
    }
    run(async {
        let plain = Server::mirror("127.82.0.1:0").await;
        let tls = TlsServer::start("127.82.0.1");
        let world = World::new(rules()).await;
        world.names.has("a.test", &["127.82.0.1"]);
        for scheme in ["http", "socks5h"] {
            let url = format!("http://a.test:{}/page", plain.port());
            let page = with_proxy(&world, scheme, "curl", &["-sS", "--max-time", "10", &url]).await;
            assert!(text(&page).starts_with("GET /page HTTP/1.1"), "{scheme}: {}", text(&page));
            let url = format!("https://a.test:{}/", tls.port);
            let page = with_proxy(&world, scheme, "curl", &["-sSk", "--max-time", "10", &url]).await;
            assert!(page.status.success() && text(&page).contains("s_server"), "{scheme}: {}", text(&page));
            // The handshake says what the URL says, and the tunnel is for another name.
            let resolve = format!("b.test:{}:a.test:{}", tls.port, tls.port);
            let url = format!("https://b.test:{}/", tls.port);
            let arguments = ["-sSk", "--max-time", "10", "--connect-to", &resolve, &url];
            let page = with_proxy(&world, scheme, "curl", &arguments).await;
            assert!(!page.status.success(), "{scheme}: {}", text(&page));
        }
        assert!(world.session.denials().iter().any(|event| event.code == "name_mismatch"));
    });
}

#[test]
fn curl_shows_why_it_was_denied() {
    if !has("curl") {
        return;
    }
    run(async {
        let world = World::new(rules()).await;
        let page = with_proxy(&world, "http", "curl", &["-sS", "http://evil.test/"]).await;
        assert!(text(&page).contains("add \"evil.test\" to network.domains"), "{}", text(&page));
        let page = with_proxy(&world, "http", "curl", &["-sSv", "https://evil.test/"]).await;
        assert!(text(&page).contains("add \"evil.test\" to network.domains"), "{}", text(&page));
        let page = with_proxy(&world, "socks5h", "curl", &["-sS", "https://evil.test/"]).await;
        assert!(!page.status.success());
        let page =
            with_proxy(&world, "http", "curl", &["-sS", "http://169.254.169.254/latest/meta-data/"]).await;
        assert!(text(&page).contains("metadata service"), "{}", text(&page));
        assert_eq!(world.names.asked(), Vec::<String>::new());
    });
}

#[test]
fn curl_sends_and_gets_large_bodies_unharmed() {
    if !has("curl") {
        return;
    }
    run(async {
        let server = Server::mirror("127.82.0.2:0").await;
        let world = World::new(rules()).await;
        world.names.has("a.test", &["127.82.0.2"]);
        let mut random = 1u64;
        let body: Vec<u8> = std::iter::repeat_with(|| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 56) as u8
        })
        .take(3 << 20)
        .collect();
        let file = std::env::temp_dir().join(format!("workroom-egress-body-{}", std::process::id()));
        std::fs::write(&file, &body).unwrap();
        let url = format!("http://a.test:{}/", server.port());
        let data = format!("@{}", file.display());
        for chunked in [None, Some("Transfer-Encoding: chunked")] {
            for tunnel in [false, true] {
                let mut arguments = vec!["-sS", "--max-time", "30", "--data-binary", &data, &url];
                arguments.extend(chunked.iter().flat_map(|header| ["-H", header]));
                if tunnel {
                    arguments.push("--proxytunnel");
                }
                let page = with_proxy(&world, "http", "curl", &arguments).await;
                assert!(page.stdout.ends_with(&body), "{chunked:?} {tunnel} {} bytes", page.stdout.len());
            }
        }
        let _ = std::fs::remove_file(file);
    });
}

#[test]
fn python_shows_why_its_tunnel_was_denied() {
    if !has("python3") {
        return;
    }
    run(async {
        let server = Server::mirror("127.82.0.3:0").await;
        let world = World::new(rules()).await;
        world.names.has("a.test", &["127.82.0.3"]);
        let fetch = "import sys, urllib.request as r\ntry: print(r.urlopen(sys.argv[1], timeout=10).read().decode())\nexcept Exception as e: print(e)";
        let url = format!("http://a.test:{}/python", server.port());
        let page = with_proxy(&world, "http", "python3", &["-c", fetch, &url]).await;
        assert!(text(&page).contains("GET /python HTTP/1.1"), "{}", text(&page));
        let page = with_proxy(&world, "http", "python3", &["-c", fetch, "https://evil.test/"]).await;
        assert!(text(&page).contains("add \"evil.test\" to network.domains"), "{}", text(&page));
    });
}
