//! What a command sees, and what becomes of it. No test waits for time to pass: that processes are gone is seen
//! at the end of a pipe that only they held.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use countersign::testing::call_context;
use countersign::{
    CONTENT_BYTES_MAX, DETAIL_BYTES_MAX, DataClass, Effect, OperatorWord, Origin, Pause, Subject, ToolFailure,
};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use super::*;
use crate::kept::KEPT_BYTES_MAX;

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);

fn config(command: &[&str], folder: &Path) -> CommandToolConfig {
    CommandToolConfig {
        spec: ToolSpec {
            name: "word_count".parse().unwrap(),
            description: "Count words".into(),
            group: "text".parse().unwrap(),
            origin: Origin::Command,
            effect: Effect::Write,
            data_class: DataClass::EditorContent,
            enabled_by_default: true,
            requires_admin: false,
            pause: Pause::Runs,
            operator: OperatorWord::Silent,
            parameters: serde_json::json!({ "type": "object" }),
        },
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        folder: folder.to_owned(),
        timeout: LONG,
        environment: CommandEnvironment {
            path: Some("/usr/bin:/bin".into()),
            ..CommandEnvironment::default()
        },
        preview: None,
    }
}

fn tool(command: &[&str], folder: &Path) -> CommandTool {
    CommandTool::new(config(command, folder)).unwrap()
}

fn arguments() -> Arguments {
    Arguments::read(Some(r#"{"text":"a b","n":1e21}"#)).unwrap()
}

fn context() -> CallContext {
    call_context(&Subject::parse("alice").unwrap(), None)
}

async fn call(command: &[&str]) -> Result<ToolOutput, ToolError> {
    let folder = tempfile::tempdir().unwrap();
    tool(command, folder.path()).call(&arguments(), &context()).await
}

async fn says(script: &str) -> String {
    call(&["sh", "-c", script]).await.unwrap().content.kept().to_owned()
}

/// What a model is told of a command that fails, and what the record keeps.
async fn answered(script: &str) -> (String, String) {
    let error = call(&["sh", "-c", script]).await.unwrap_err();
    let ToolFailure::Answered(sentence) = error.failure() else { panic!("{error:?}") };
    (sentence.kept().to_owned(), detail(&error))
}

fn detail(error: &ToolError) -> String {
    error.detail().unwrap().as_str().to_owned()
}

#[tokio::test]
async fn the_arguments_are_one_line_of_json_on_the_standard_input() {
    assert_eq!(says("cat").await, format!("{}\n", arguments().text()));
    assert_eq!(says("wc -l").await.trim(), "1");
}

#[tokio::test]
async fn a_command_that_reads_nothing_is_not_held_up() {
    let folder = tempfile::tempdir().unwrap();
    let long = Arguments::read(Some(&format!(r#"{{"text":"{}"}}"#, "x".repeat(3_000_000)))).unwrap();
    for script in ["echo done", "exec <&-; echo done", "echo done; head -c 1 >/dev/null"] {
        let output = tool(&["sh", "-c", script], folder.path()).call(&long, &context()).await;
        assert_eq!(output.unwrap(), "done\n".into(), "{script}");
    }
}

#[tokio::test]
async fn rule_r4_the_environment_is_five_variables() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(&["env"], folder.path());
    config.environment = CommandEnvironment {
        path: Some("/usr/bin:/bin".into()),
        home: Some("/home/ann".into()),
        lang: Some("C.UTF-8".into()),
        tz: Some("Europe/Berlin".into()),
    };
    let output = CommandTool::new(config).unwrap().call(&arguments(), &context()).await.unwrap();
    let mut seen: Vec<&str> = output.content.kept().lines().collect();
    seen.sort_unstable();
    let expected = [
        "COUNTERSIGN_IDEMPOTENCY_KEY=test-key",
        "HOME=/home/ann",
        "LANG=C.UTF-8",
        "PATH=/usr/bin:/bin",
        "TZ=Europe/Berlin",
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_command_runs_in_its_folder_and_in_a_group_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().canonicalize().unwrap();
    let output = tool(&["pwd"], folder.path()).call(&arguments(), &context()).await.unwrap();
    assert_eq!(Path::new(output.content.kept().trim_end()), place);
    // The fifth field of stat is the process group.
    let group = says("cut -d ' ' -f 5 /proc/self/stat").await;
    let ours = rustix::process::getpgrp().as_raw_nonzero().to_string();
    assert_ne!(group.trim_end(), ours);
}

#[tokio::test]
async fn a_relative_program_starts_at_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    // A program that was just written may still be open in a child of another test; a link is never written.
    std::fs::write(folder.path().join("notes"), "no program").unwrap();
    std::os::unix::fs::symlink("/bin/sh", folder.path().join("count")).unwrap();
    let error = tool(&["./notes"], folder.path()).call(&arguments(), &context()).await.unwrap_err();
    let expected = "The tool word_count could not be started: its program may not be executed.";
    assert_eq!(error.failure(), &ToolFailure::NotSent(expected.into()));
    let tool = tool(&["./count", "-c", "echo counted"], folder.path());
    assert_eq!(tool.call(&arguments(), &context()).await.unwrap(), "counted\n".into());
}

#[tokio::test]
async fn rule_r3_a_program_that_is_not_there_means_nothing_was_sent() {
    let folder = tempfile::tempdir().unwrap();
    for (program, place) in [
        ("no-such-program", folder.path()),
        ("./no-such-program", folder.path()),
        ("/no/such/program", folder.path()),
        ("true", Path::new("/no/such/folder")),
    ] {
        let error = tool(&[program], place).call(&arguments(), &context()).await.unwrap_err();
        let expected = "The tool word_count could not be started: its program or its folder is not there.";
        assert_eq!(error.failure(), &ToolFailure::NotSent(expected.into()), "{program}");
        assert!(detail(&error).contains("No such file or directory"), "{program}: {}", detail(&error));
    }
}

#[tokio::test]
async fn rule_s5_every_end_but_zero_is_an_error_result_whose_details_are_for_the_record() {
    for (script, ended, kept) in [
        ("echo lost; exit 3", "exit status: 3", "\nlost\n"),
        ("exit 3", "exit status: 3", ""),
        ("kill -SEGV $$", "signal: 11 (SIGSEGV)", ""),
        ("echo out; echo 'no such page' >&2; exit 1", "exit status: 1", "\nno such page"),
        (r"printf 'a\377b' >&2; exit 1", "exit status: 1", "\na\u{fffd}b"),
    ] {
        let (sentence, detail) = answered(script).await;
        assert_eq!(sentence, format!("The tool word_count failed ({ended})."), "{script}");
        assert_eq!(detail, format!("{ended}{kept}"), "{script}");
    }
}

#[tokio::test]
async fn only_the_end_of_the_error_output_is_kept() {
    let (_, detail) = answered("yes é | head -n 100000 >&2; echo the last word >&2; exit 1").await;
    assert!(detail.starts_with("exit status: 1\n[what came before is not kept]\n"), "{detail}");
    assert!(detail.ends_with("é\nthe last word") && !detail.contains('\u{fffd}'), "{detail}");
    assert!(detail.len() <= DETAIL_BYTES_MAX);
}

#[tokio::test]
async fn the_error_output_of_a_command_that_succeeds_is_left_out() {
    assert_eq!(says("echo warned >&2; echo counted").await, "counted\n");
}

#[tokio::test]
async fn case_c53_fifty_megabytes_are_cut_with_their_true_size() {
    let content = call(&["sh", "-c", "yes é🦀 | head -c 52428796"]).await.unwrap().content;
    assert_eq!(content.bytes(), 52_428_796);
    let kept = content.kept();
    assert!((CONTENT_BYTES_MAX..=KEPT_BYTES_MAX).contains(&kept.len()) && kept.starts_with("é🦀\né"));
}

#[tokio::test]
async fn case_c53_bytes_that_are_no_text_are_an_error() {
    for script in [r"printf 'a\377b'", r"printf 'a\303'", r"yes | head -c 2000000; printf '\377'"] {
        let (sentence, detail) = answered(script).await;
        assert_eq!(sentence, "The tool word_count failed: its output is not UTF-8.", "{script}");
        assert!(detail.starts_with("not UTF-8; its output:\n"), "{script}: {detail}");
    }
    assert_eq!(says(r"printf 'a\000b'").await, "a\0b", "for the core to show");
}

#[tokio::test]
async fn case_c53_output_without_end_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(&["sh", "-c", "exec cat /dev/zero"], folder.path());
    let error = CommandTool::new(config.clone()).unwrap().call(&arguments(), &context()).await.unwrap_err();
    assert!(matches!(error.failure(), ToolFailure::NoAnswer), "a write may have happened: {error:?}");
    config.spec.effect = Effect::Read;
    let error = CommandTool::new(config).unwrap().call(&arguments(), &context()).await.unwrap_err();
    assert_eq!(error.to_string(), "The tool word_count failed: its output is too large.");
    assert_eq!(detail(&error), format!("killed after more than {READ_BYTES_MAX} bytes of output"));
    let said = detail(&call(&["sh", "-c", "echo 'reading all' >&2; exec cat /dev/zero"]).await.unwrap_err());
    assert_eq!(said, format!("killed after more than {READ_BYTES_MAX} bytes of output\nreading all"));
}

/// A pipe with a name, which a command's grandchild holds for as long as it lives.
struct Witness {
    folder: TempDir,
    reader: Option<BufReader<std::fs::File>>,
}

impl Witness {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        mknodat(CWD, folder.path().join("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        Self { folder, reader: None }
    }

    /// A command that waits for a child of its own, which says `up`, and would say `late` if it were left alone.
    fn tool(&self, before: &str) -> CommandTool {
        let grandchild = "exec 3>pipe; echo up >&3; sleep 60; echo late >&3";
        let script = format!("{before}\nsh -c '{grandchild}' & wait");
        tool(&["sh", "-c", &script], self.folder.path())
    }

    /// Waits until the grandchild is there.
    async fn wait_until_up(mut self) -> Self {
        tokio::task::spawn_blocking(move || {
            let pipe = OpenOptions::new().read(true).open(self.folder.path().join("pipe")).unwrap();
            let mut line = String::new();
            let mut reader = BufReader::new(pipe);
            reader.read_line(&mut line).unwrap();
            assert_eq!(line, "up\n");
            self.reader = Some(reader);
            self
        })
        .await
        .unwrap()
    }

    /// Waits until nobody holds the pipe, which must come before its last word.
    async fn wait_until_gone(self) {
        tokio::task::spawn_blocking(move || {
            let mut rest = String::new();
            self.reader.unwrap().read_to_string(&mut rest).unwrap();
            assert_eq!(rest, "", "the grandchild lived on");
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn the_whole_group_dies_when_the_caller_stops_waiting() {
    let witness = Witness::new();
    let tool = witness.tool("");
    let call = tokio::spawn(async move { tool.call(&arguments(), &context()).await });
    let witness = witness.wait_until_up().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    witness.wait_until_gone().await;
}

#[tokio::test]
async fn rule_r3_the_whole_group_dies_at_the_deadline_and_that_is_no_answer() {
    let witness = Witness::new();
    let tool = witness.tool("");
    let (deadline, passed) = tokio::sync::oneshot::channel();
    let call = tokio::spawn(async move {
        tool.call_until(&arguments(), &context(), async { passed.await.unwrap() }).await
    });
    let witness = witness.wait_until_up().await;
    deadline.send(()).unwrap();
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error.failure(), ToolFailure::TimedOut), "{error:?}");
    witness.wait_until_gone().await;
}

#[tokio::test]
async fn rule_r3_the_deadline_is_kept_without_a_caller_that_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = config(&["sleep", "60"], folder.path());
    config.timeout = Duration::from_millis(1);
    let error = CommandTool::new(config).unwrap().call(&arguments(), &context()).await.unwrap_err();
    assert!(matches!(error.failure(), ToolFailure::TimedOut), "{error:?}");
}

#[tokio::test]
async fn rule_r3_what_a_command_said_before_its_deadline_is_in_the_record() {
    let witness = Witness::new();
    // It does not end when it is asked to, and says the last word before it says that it is up.
    let tool =
        witness.tool("trap '' TERM INT HUP; yes é | head -n 100000 >&2; echo 'waiting for the lock' >&2");
    let (deadline, passed) = tokio::sync::oneshot::channel();
    let call = tokio::spawn(async move {
        tool.call_until(&arguments(), &context(), async { passed.await.unwrap() }).await
    });
    let witness = witness.wait_until_up().await;
    deadline.send(()).unwrap();
    let detail = detail(&call.await.unwrap().unwrap_err());
    assert!(detail.starts_with("killed at its deadline\n[what came before is not kept]\n"), "{detail}");
    assert!(detail.ends_with("é\nwaiting for the lock"), "{detail}");
    witness.wait_until_gone().await;
}

#[tokio::test]
async fn the_whole_group_dies_with_its_worker() {
    let witness = Witness::new();
    // A group that sends signals to all of itself keeps its watchdog.
    let mut running = witness.tool("trap '' HUP TERM; kill -HUP 0; kill -TERM 0").start("key").await.unwrap();
    let witness = witness.wait_until_up().await;
    running.group.sever();
    witness.wait_until_gone().await;
    assert!(!running.child.wait().await.unwrap().success());
}

#[tokio::test]
async fn what_a_command_leaves_behind_ends_with_it_and_holds_nothing_up() {
    let witness = Witness::new();
    let grandchild = "exec 3>pipe; echo up >&3; echo up >started; sleep 60; echo late >&3";
    let script = format!("sh -c '{grandchild}' & until [ -s started ]; do :; done; echo done");
    let tool = tool(&["sh", "-c", &script], witness.folder.path());
    let call = tokio::spawn(async move { tool.call(&arguments(), &context()).await });
    let witness = witness.wait_until_up().await;
    assert_eq!(call.await.unwrap().unwrap(), "done\n".into());
    witness.wait_until_gone().await;
}

#[tokio::test]
async fn all_that_was_written_before_the_end_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let tool = tool(&["sh", "-c", "head -c 60000 /dev/zero | tr '\\0' x; echo end"], folder.path());
    for _ in 0..50 {
        let content = tool.call(&arguments(), &context()).await.unwrap().content;
        assert_eq!((content.bytes(), &content.kept()[60_000..]), (60_004, "end\n"));
    }
}

#[test]
fn a_command_needs_a_program() {
    let folder = Path::new("/");
    for (command, expected) in [
        (&[][..], "`command` must name a program"),
        (&[""], "`command` must name a program"),
        (&["wc", "a\0b"], "`command` must not hold a NUL character"),
    ] {
        assert_eq!(CommandTool::new(config(command, folder)).unwrap_err().to_string(), expected);
    }
}

#[tokio::test]
async fn a_preview_is_asked_for_over_http_if_there_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let cx = countersign::testing::preview_context(&Subject::parse("alice").unwrap());
    assert!(tool(&["true"], folder.path()).preview(&arguments(), &cx).await.is_none());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = config(&["true"], folder.path());
    config.preview = Some(format!("http://{}/preview", listener.local_addr().unwrap()));
    drop(listener);
    let tool = CommandTool::new(config).unwrap();
    let error = tool.preview(&arguments(), &cx).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "word_count could not be reached.");
    assert!(!format!("{tool:?}").contains("preview"));
}
