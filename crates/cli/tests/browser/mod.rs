//! A real browser, driven over its DevTools protocol: pages are opened, and scripts run in them as the page's own.

use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::Mutex;
use workroom_testkit::{User, unique, within};

/// Names that a browser of this kind goes by.
const NAMES: [&str; 5] =
    ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chromium-headless-shell"];

/// Without what costs time, and without what would reach for the network. The pages are our own: they need no sandbox,
/// which the browser refuses to have as root.
const OPTIONS: [&str; 11] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--no-first-run",
    "--no-default-browser-check",
    "--password-store=basic",
    "--remote-debugging-pipe",
];

/// Its DevTools pipe is on descriptors 3 and 4, which a shell can arrange and safe Rust cannot.
const ON_ITS_DESCRIPTORS: &str = r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null"#;

pub(crate) struct Browser {
    process: Child,
    wire: Mutex<Wire>,
}

struct Wire {
    to: pipe::Sender,
    from: pipe::Receiver,
    /// What has come and is not a whole message yet.
    came: Vec<u8>,
    /// What happened and nobody has asked for yet.
    events: VecDeque<Value>,
    calls: u64,
}

/// Where the browser is; says so where there is none, which is seen although the test passes.
pub(crate) fn installed() -> Option<PathBuf> {
    let told = std::env::var_os("WORKROOM_BROWSER");
    if told.as_ref().is_some_and(|told| told != "skip") {
        return told.map(PathBuf::from);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let found = NAMES.iter().flat_map(|name| dirs.iter().map(move |dir| dir.join(name)));
    let found = found.into_iter().find(|path| told.is_none() && path.exists());
    if found.is_none() {
        let why =
            if told.is_some() { "WORKROOM_BROWSER=skip" } else { "no Chromium is installed; `make browser`" };
        let _ = writeln!(std::io::stderr(), "skipped: previews are not tried with a browser: {why}");
    }
    found
}

impl Browser {
    /// With more options, and with nothing that another one has kept.
    pub(crate) fn start(program: &PathBuf, user: &User, options: &[String]) -> Browser {
        let profile = user.make_dir(&format!("browser-{}", unique()));
        let log = std::fs::File::create(profile.join("log")).expect("a log");
        let mut process = user
            .command("/bin/sh")
            .args(["-c", ON_ITS_DESCRIPTORS, "sh"])
            .arg(program)
            .args(OPTIONS)
            .arg(format!("--user-data-dir={}", profile.display()))
            .args(options)
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0)
            .spawn()
            .expect("a browser");
        let to = OwnedFd::from(process.stdin.take().expect("a pipe"));
        let from = OwnedFd::from(process.stdout.take().expect("a pipe"));
        let wire = Wire {
            to: pipe::Sender::from_owned_fd(to).expect("a pipe"),
            from: pipe::Receiver::from_owned_fd(from).expect("a pipe"),
            came: Vec::new(),
            events: VecDeque::new(),
            calls: 0,
        };
        Browser { process, wire: Mutex::new(wire) }
    }

    async fn call(&self, session: Option<&str>, method: &'static str, params: Value) -> Value {
        let answer = async { self.wire.lock().await.call(session, method, params).await };
        within(method, answer).await
    }

    /// An empty page of the person who uses the browser.
    pub(crate) async fn page(&self) -> Page<'_> {
        self.page_of(json!({"url": "about:blank"})).await
    }

    /// An empty page of another person, who shares nothing with the first.
    pub(crate) async fn page_of_another(&self) -> Page<'_> {
        let person = self.call(None, "Target.createBrowserContext", json!({})).await;
        let person = &person["browserContextId"];
        self.page_of(json!({"url": "about:blank", "browserContextId": person})).await
    }

    async fn page_of(&self, wanted: Value) -> Page<'_> {
        let made = self.call(None, "Target.createTarget", wanted).await;
        let attach = json!({"targetId": made["targetId"], "flatten": true});
        let attached = self.call(None, "Target.attachToTarget", attach).await;
        let page =
            Page { browser: self, session: attached["sessionId"].as_str().expect("a page").to_owned() };
        page.call("Page.enable", json!({})).await;
        page
    }

    /// Every cookie that the person's browser keeps, as `(domain, name, value)`. A domain with a dot before it is for all
    /// names below.
    pub(crate) async fn cookies(&self) -> Vec<(String, String, String)> {
        let all = self.call(None, "Storage.getCookies", json!({})).await;
        let text = |cookie: &Value, field: &str| cookie[field].as_str().unwrap_or_default().to_owned();
        let of = |it: &Value| (text(it, "domain"), text(it, "name"), text(it, "value"));
        let mut cookies: Vec<_> = all["cookies"].as_array().expect("cookies").iter().map(of).collect();
        cookies.sort();
        cookies
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.process.wait();
    }
}

/// A tab.
pub(crate) struct Page<'b> {
    browser: &'b Browser,
    session: String,
}

impl Page<'_> {
    async fn call(&self, method: &'static str, params: Value) -> Value {
        self.browser.call(Some(&self.session), method, params).await
    }

    /// As a person who types an address; returns when all of the page has been loaded.
    pub(crate) async fn open(&self, url: &str) {
        let opened = self.call("Page.navigate", json!({"url": url})).await;
        assert_eq!(opened["errorText"], Value::Null, "{url}");
        self.loaded().await;
    }

    /// Waits until a page has been loaded.
    pub(crate) async fn loaded(&self) {
        let loaded = async {
            self.browser.wire.lock().await.event(&self.session, "Page.loadEventFired").await;
        };
        within("a page that is loaded", loaded).await;
    }

    /// The value of an expression in the page, as if a person had just clicked there; of a promise, what it becomes.
    pub(crate) async fn js(&self, expression: &str) -> Value {
        let asked = json!({
            "expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true,
        });
        let answer = self.call("Runtime.evaluate", asked).await;
        assert_eq!(answer["exceptionDetails"], Value::Null, "{expression}");
        answer["result"]["value"].clone()
    }

    /// The same, as text.
    pub(crate) async fn text(&self, expression: &str) -> String {
        let value = self.js(expression).await;
        value.as_str().unwrap_or_else(|| panic!("{expression} is {value}")).to_owned()
    }
}

impl Wire {
    async fn call(&mut self, session: Option<&str>, method: &str, params: Value) -> Value {
        self.calls += 1;
        let id = self.calls;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).await.expect("a browser that listens");
        loop {
            let message = self.next().await;
            if message["id"] == id {
                assert_eq!(message["error"], Value::Null, "{method}");
                return message["result"].clone();
            }
            self.events.push_back(message);
        }
    }

    async fn event(&mut self, session: &str, method: &str) {
        let is_it = |message: &Value| message["sessionId"] == session && message["method"] == method;
        if let Some(at) = self.events.iter().position(is_it) {
            self.events.remove(at);
            return;
        }
        loop {
            let message = self.next().await;
            if is_it(&message) {
                return;
            }
            self.events.push_back(message);
        }
    }

    /// Messages end with a zero.
    async fn next(&mut self) -> Value {
        loop {
            if let Some(end) = self.came.iter().position(|byte| *byte == 0) {
                let message: Vec<u8> = self.came.drain(..=end).collect();
                return serde_json::from_slice(&message[..end]).expect("JSON");
            }
            let count = self.from.read_buf(&mut self.came).await.expect("a browser that speaks");
            assert!(count > 0, "the browser has ended");
        }
    }
}
