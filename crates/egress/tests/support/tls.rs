//! A real TLS server, where openssl is there: its certificate is for nobody, so clients must not look at it.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

pub struct TlsServer {
    server: Child,
    directory: PathBuf,
    pub port: u16,
}

impl TlsServer {
    /// Serves a status page over HTTPS on the address.
    pub fn start(address: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("workroom-egress-{}-{address}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
            .args(["-keyout", "key", "-out", "certificate", "-subj", "/CN=nobody.test", "-days", "1"])
            .current_dir(&directory)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        // A port that was free a moment ago.
        let port = std::net::TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port();
        let server = Command::new("openssl")
            .args(["s_server", "-quiet", "-www", "-key", "key", "-cert", "certificate", "-accept"])
            .arg(format!("{address}:{port}"))
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        for _ in 0..200 {
            if std::net::TcpStream::connect((address, port)).is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        TlsServer { server, directory, port }
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
