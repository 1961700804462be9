//! Tools that are a command of this machine, declared by the operator.
//!
//! Invariant: a command sees its arguments on its standard input, five variables and its folder, and nothing
//! else of us. Nothing that belongs to a call outlives it: its process group is killed when the command has
//! ended, at the deadline, when the caller stops waiting, and when this process dies, however it dies (`group`).
//! An ended command has answered, whatever it did; one that we killed has not.
//!
//! Not here: a shell. The operator names a program and its arguments, and no text of a model is among them.

mod group;
mod output;

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use countersign::{
    Arguments, CallContext, Detail, PreviewContext, Tool, ToolError, ToolOutput, ToolPreview, ToolSpec,
};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, Command};

use self::group::Group;
use self::output::Output;
use crate::http_tool::HttpPreview;
use crate::kept::READ_BYTES_MAX;
use crate::tool_setup::ToolSetupError;

/// How much of its time a command is killed before the end, so that its last words still get into the record; of a
/// short time at most a tenth.
const LAST_WORDS_TIME: Duration = Duration::from_millis(250);

/// A tool that is a command.
#[derive(Clone, Debug)]
pub struct CommandToolConfig {
    /// Its facts.
    pub spec: ToolSpec,
    /// The program and its arguments. A program without a slash is looked for in `environment.path`; a relative
    /// one with a slash starts at `folder`.
    pub command: Vec<String>,
    /// Where it runs.
    pub folder: PathBuf,
    /// How long one call may take. The command is killed up to a quarter of a second before, so that what it wrote
    /// is still in time.
    pub timeout: Duration,
    /// What it sees of the environment.
    pub environment: CommandEnvironment,
    /// Where previews are asked for over HTTP, if there are any; a command itself makes none.
    pub preview: Option<String>,
}

/// The variables a command sees, beside `COUNTERSIGN_IDEMPOTENCY_KEY`. One that is `None` is not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandEnvironment {
    /// `PATH`.
    pub path: Option<String>,
    /// `HOME`.
    pub home: Option<String>,
    /// `LANG`.
    pub lang: Option<String>,
    /// `TZ`.
    pub tz: Option<String>,
}

/// A tool that is a command: the arguments as one line of JSON on its standard input, its standard output for
/// the model if it exits with 0, an error result if it ends in any other way.
#[derive(Clone)]
pub struct CommandTool {
    spec: ToolSpec,
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
    timeout: Duration,
    environment: Vec<(&'static str, String)>,
    preview: Option<HttpPreview>,
}

impl fmt::Debug for CommandTool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("CommandTool").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

impl CommandTool {
    /// Checks the declaration. Nothing is started, and the program need not be there yet.
    ///
    /// # Errors
    /// [`ToolSetupError`].
    pub fn new(config: CommandToolConfig) -> Result<Self, ToolSetupError> {
        let CommandToolConfig { spec, command, folder, timeout, environment, preview } = config;
        if command.iter().any(|word| word.contains('\0')) {
            return Err(ToolSetupError::NulInCommand);
        }
        let mut words = command.into_iter();
        let program = words.next().filter(|program| !program.is_empty()).ok_or(ToolSetupError::NoProgram)?;
        let program = if program.contains('/') { folder.join(program) } else { program.into() };
        let CommandEnvironment { path, home, lang, tz } = environment;
        let variables = [("PATH", path), ("HOME", home), ("LANG", lang), ("TZ", tz)];
        Ok(Self {
            spec,
            program,
            arguments: words.collect(),
            folder,
            timeout,
            environment: variables.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(),
            preview: preview.map(|url| HttpPreview::new(&url, timeout)).transpose()?,
        })
    }

    /// Starts the command in a process group of its own.
    async fn start(&self, key: &str) -> Result<Running, ToolError> {
        let not_sent = |why: &str, error: &io::Error| {
            let sentence = format!("The tool {} could not be started: {why}.", self.spec.name);
            ToolError::not_sent(sentence).with_detail(Detail::new(&error.to_string()))
        };
        let group = Group::form().await;
        let group = group.map_err(|error| not_sent("no process group can be formed for it", &error))?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.folder);
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env("COUNTERSIGN_IDEMPOTENCY_KEY", key);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.process_group(group.id()).spawn().map_err(|error| {
            let why = if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) {
                "its program or its folder is not there"
            } else if error.kind() == ErrorKind::PermissionDenied {
                "its program may not be executed"
            } else {
                "the system does not start its program"
            };
            not_sent(why, &error)
        })?;
        Ok(Running { child, group })
    }

    /// One call. What is not answered at the deadline is killed.
    async fn call_until(
        &self,
        arguments: &Arguments,
        cx: &CallContext,
        deadline: impl Future<Output = ()>,
    ) -> Result<ToolOutput, ToolError> {
        let running = self.start(&cx.idempotency_key).await?;
        self.answer(running, arguments.text(), deadline).await
    }

    /// Waits for a started command, until it ends or is ended.
    async fn answer(
        &self,
        mut running: Running,
        arguments: String,
        deadline: impl Future<Output = ()>,
    ) -> Result<ToolOutput, ToolError> {
        let (Some(stdout), Some(stderr)) = (running.child.stdout.take(), running.child.stderr.take()) else {
            return Err(ToolError::no_answer());
        };
        let stdin = running.child.stdin.take();
        let mut output = Output::new(stdout, stderr);
        let ended = tokio::select! {
            biased;
            status = running.child.wait() => Ended::Itself(status.map_err(|error| {
                ToolError::no_answer().with_detail(Detail::new(&error.to_string()))
            })?),
            () = deadline => Ended::Late,
            () = output.read() => Ended::TooMuch,
            never = feed(stdin, arguments) => match never {},
        };
        // What the command wrote is in its pipes now. What it left behind may hold them open; that ends here.
        running.group.end().await;
        output.drain();
        match ended {
            Ended::Itself(status) => self.judge(status, output),
            Ended::Late => {
                Err(ToolError::timed_out().with_detail(output.last_words("killed at its deadline")))
            }
            Ended::TooMuch => Err(self.too_much(&output)),
        }
    }

    fn judge(&self, status: ExitStatus, output: Output) -> Result<ToolOutput, ToolError> {
        let name = &self.spec.name;
        if !status.success() {
            let detail = output.last_words(&status.to_string());
            return Err(
                ToolError::answered(format!("The tool {name} failed ({status}).")).with_detail(detail)
            );
        }
        output.into_content().map(ToolOutput::from).map_err(|detail| {
            ToolError::answered(format!("The tool {name} failed: its output is not UTF-8."))
                .with_detail(detail)
        })
    }

    /// We stopped it in the middle of its work: for a read an error, for a write no answer.
    fn too_much(&self, output: &Output) -> ToolError {
        let error = if self.spec.effect.writes() {
            ToolError::no_answer()
        } else {
            ToolError::answered(format!("The tool {} failed: its output is too large.", self.spec.name))
        };
        error.with_detail(output.errors(&format!("killed after more than {READ_BYTES_MAX} bytes of output")))
    }
}

/// How the wait for a command ended.
enum Ended {
    /// The command ended by itself.
    Itself(ExitStatus),
    /// Its time was over.
    Late,
    /// It wrote more than is read.
    TooMuch,
}

/// A command and the group it runs in. Dropped, it is killed.
struct Running {
    child: Child,
    group: Group,
}

/// Writes the arguments, and closes the pipe. A command that does not read them has its reasons.
async fn feed(stdin: Option<ChildStdin>, arguments: String) -> Infallible {
    if let Some(mut stdin) = stdin {
        drop(stdin.write_all(format!("{arguments}\n").as_bytes()).await);
    }
    std::future::pending().await
}

#[async_trait]
impl Tool for CommandTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    async fn call(&self, arguments: &Arguments, cx: &CallContext) -> Result<ToolOutput, ToolError> {
        // Whoever calls stops waiting at the timeout, and what the command said would be lost with it.
        let limit = self.timeout - LAST_WORDS_TIME.min(self.timeout / 10);
        let pending = std::future::pending::<()>();
        let deadline = async { drop(tokio::time::timeout(limit, pending).await) };
        self.call_until(arguments, cx, deadline).await
    }

    async fn preview(
        &self,
        arguments: &Arguments,
        cx: &PreviewContext,
    ) -> Option<Result<ToolPreview, ToolError>> {
        Some(self.preview.as_ref()?.show(&self.spec.name, arguments, cx).await)
    }
}
