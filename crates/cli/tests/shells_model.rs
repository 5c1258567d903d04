//! A stateful shell against its model: a plain bash on this machine that reads the same commands, one after the other.

use serde_json::json;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use workroom_testkit::{Server, User, run};

/// A long-lived bash. It is told to print a line that no command prints after each command.
struct Model {
    bash: Child,
    input: ChildStdin,
    output: ChildStdout,
}

const END: &str = "===the-end===";

impl Model {
    fn start(dir: &std::path::Path) -> Model {
        let mut bash = Command::new("/bin/bash")
            .args(["--noprofile", "--norc"])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LC_ALL", "C.UTF-8")
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("bash");
        let (input, output) = (bash.stdin.take().expect("stdin"), bash.stdout.take().expect("stdout"));
        let mut model = Model { bash, input, output };
        model.run("shopt -s expand_aliases");
        model
    }

    /// What it writes to stdout, and its exit code.
    fn run(&mut self, command: &str) -> (String, i32) {
        let after = format!("model_s=$?; printf '{END}%s\\n' $model_s; (exit $model_s)");
        write!(self.input, "{command}\n{after}\n").expect("a bash that reads");
        self.input.flush().expect("a bash that reads");
        let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let read = self.output.read(&mut buffer).expect("a bash that writes");
            assert_ne!(read, 0, "the model ended at {command:?}");
            seen.extend_from_slice(&buffer[..read]);
            let text = String::from_utf8_lossy(&seen).into_owned();
            if let Some((before, code)) = text.split_once(END)
                && let Some(code) = code.strip_suffix('\n')
            {
                return (before.to_owned(), code.parse().expect("a code"));
            }
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.bash.kill();
        let _ = self.bash.wait();
    }
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn pick<'w>(&mut self, words: &[&'w str]) -> &'w str {
        words[self.roll(words.len())]
    }

    fn command(&mut self) -> String {
        let name = self.pick(&["a", "b", "c", "long_name", "_x"]);
        let value =
            self.pick(&["1", "'two words'", "\"$a\"", "$((RANDOM * 0 + 7))", "'*'", "''", "\"it's\"", "äöü"]);
        match self.roll(24) {
            0 => format!("{name}={value}"),
            1 => format!("export {name}={value}"),
            2 => format!("unset {name}"),
            3 => format!("echo \"<${name}>\" ${{{name}-unset}} ${{#{name}}}"),
            4 => format!(
                "f_{name}() {{ echo \"f {name} $1 ${name}\"; {name}={value}; return {}; }}",
                self.roll(9)
            ),
            5 => format!("f_{name} {value}"),
            6 => format!("alias l_{name}='echo alias {name}'"),
            7 => format!("l_{name}"),
            8 => format!("mkdir -p d{0} && cd d{0}", self.roll(3)),
            9 => "cd ..; cd -- \"$OLDPWD\" >/dev/null; basename \"$PWD\"".to_owned(),
            10 => format!("set -- {value} {name} x; echo $#"),
            11 => "echo $# \"$1\" \"$*\"".to_owned(),
            12 => format!("declare -a arr_{name}=({value} y z); arr_{name}[5]=six"),
            13 => format!("echo ${{arr_{name}[@]}} ${{!arr_{name}[@]}}"),
            14 => format!("declare -A map_{name}=([k]={value} [l]=m); echo ${{map_{name}[k]}}"),
            15 => format!("for i in 1 2 3; do {name}+=$i; done; echo \"${name}\""),
            16 => format!("cat <<END\n${name} and $(echo nested)\nEND"),
            17 => format!("{name}=$(echo inner; exit {}); echo $?", self.roll(4)),
            18 => format!("(exit {}); echo $?; (exit {})", self.roll(200), self.roll(200)),
            19 => "echo $?".to_owned(),
            20 => format!("shopt -{} nullglob; echo none* | wc -w", self.pick(&["s", "u"])),
            21 => format!("set {}f; echo d*", self.pick(&["-", "+"])),
            22 => format!("declare -i num_{name}=3; num_{name}+=4; echo $num_{name}; readonly ro_{name}=1"),
            _ => format!("if [[ ${name} == *1* ]]; then\n  echo has one\nelse\n  false\nfi"),
        }
    }
}

#[test]
fn a_shell_does_what_a_plain_bash_does() {
    run(async {
        let user = User::running_the_tests();
        let server = Server::of(&user);
        let session = server.session().await;
        for seed in 1..=6 {
            let scratch = workroom_testkit::Scratch::new();
            let own = scratch.path().join(seed.to_string());
            std::fs::create_dir(&own).expect("a directory");
            let mut model = Model::start(&own);
            let mut dice = Dice(seed);
            let dir = format!("/workspace/{seed}");
            session.sh(&format!("mkdir {dir}")).await;
            let shell = session.shell(json!({"cwd": dir, "env": {"LC_ALL": "C.UTF-8"}})).await;
            let mut said = Vec::new();
            for _ in 0..60 {
                let command = dice.command();
                said.push(command.clone());
                let (output, code) = model.run(&command);
                let result = shell.run(&command).await;
                assert_eq!((&result.output, result.exit_code), (&output, code), "seed {seed}: {said:#?}");
                assert!(!result.shell.ended && !result.shell.replaced, "{result:?}");
            }
        }
    });
}
