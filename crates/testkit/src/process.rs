//! A process under test, in as few words as a test is read with.

use crate::session::TestSession;
use crate::wait::{PATIENCE, within};
use workroom_client::types::{OutputStream, Process, ProcessState, SendSignal, SignalTo, StartProcess};

pub struct TestProcess<'s> {
    pub id: String,
    session: &'s TestSession,
}

impl TestSession {
    /// A process, said as the API has it.
    pub async fn process(&self, request: serde_json::Value) -> TestProcess<'_> {
        let request: StartProcess = serde_json::from_value(request).expect("a process's fields");
        let started = within("a process", self.client().start_process(&self.id, &request)).await;
        TestProcess { id: started.expect("a process that runs").id, session: self }
    }

    /// One that is there.
    pub fn known_process(&self, id: &str) -> TestProcess<'_> {
        TestProcess { id: id.to_owned(), session: self }
    }
}

impl TestProcess<'_> {
    pub fn path(&self, rest: &str) -> String {
        self.session.path(&format!("/processes/{}{rest}", self.id))
    }

    pub async fn show(&self) -> Process {
        within("the process", self.session.client().process(&self.session.id, &self.id))
            .await
            .expect("the process")
    }

    pub async fn write(&self, data: impl Into<Vec<u8>>) {
        let data: Vec<u8> = data.into();
        let written = self.session.client().write_process(&self.session.id, &self.id, data);
        let taken = within("input", written).await.expect("input that is taken");
        assert!(taken.complete, "{taken:?}");
    }

    pub async fn close_input(&self) {
        let closed = self.session.client().close_process_input(&self.session.id, &self.id);
        within("the end of input", closed).await.expect("closed");
    }

    pub async fn signal(&self, signal: &str) {
        let request = SendSignal { signal: signal.to_owned(), to: SignalTo::Group };
        let sent = self.session.client().signal_process(&self.session.id, &self.id, &request);
        within("a signal", sent).await.expect("sent");
    }

    /// How it ended.
    pub async fn ended(&self) -> Process {
        let waited = self.session.client().wait_for_process(&self.session.id, &self.id, PATIENCE);
        let process = within("its end", waited).await.expect("the process");
        assert_ne!(process.state, ProcessState::Running, "{process:?}");
        process
    }

    /// All of a stream up to its end.
    pub async fn all(&self, stream: OutputStream) -> Vec<u8> {
        self.reads(stream, |_| false).await
    }

    /// What stdout holds as soon as this is in it.
    pub async fn says(&self, wanted: &str) -> String {
        let has = |data: &[u8]| data.windows(wanted.len()).any(|window| window == wanted.as_bytes());
        let data = self.reads(OutputStream::Stdout, has).await;
        assert!(has(&data), "{wanted:?} is not in {:?}", String::from_utf8_lossy(&data));
        String::from_utf8_lossy(&data).into_owned()
    }

    /// From the beginning until it is enough, or over.
    async fn reads(&self, stream: OutputStream, is_enough: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let mut data = Vec::new();
        loop {
            let ids = (self.session.id.as_str(), self.id.as_str());
            let read = self.session.client().process_output(ids, stream, data.len() as u64, PATIENCE / 4);
            let page = within("output", read).await.expect("a page");
            assert_eq!((page.cursor, page.missing), (data.len() as u64, 0), "nothing is lost or repeated");
            data.extend_from_slice(&page.data);
            if page.end || is_enough(&data) {
                return data;
            }
        }
    }
}
