//! A process group that dies with its owner, however the owner ends.
//!
//! Invariant: as long as the group's first process is not reaped, no other group can have its number; it is
//! reaped only after the group was killed, so the kill never hits somebody else.
//!
//! That first process is a watchdog: a shell that waits for the end of a pipe which only this process holds,
//! and then kills the group it is in, itself included. So a call's processes end with a worker that was
//! killed, too. A parent-death signal would not do: it reaches the child and not the child's children, it
//! fires when a *thread* ends, and it cannot be set without unsafe code.
//!
//! Not here: processes that leave the group on purpose (`setsid`); a group cannot hold what wants to leave.

use std::io;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};

/// Signals that a command sends to its whole group are none of the watchdog's business. It says when it does
/// not hear them any more.
const WATCH: &str = "trap '' HUP INT QUIT TERM USR1 USR2 ALRM PIPE; echo; read -r end; kill -KILL 0";

/// A process group. Dropped, all of it is killed.
pub(super) struct Group {
    /// Its standard input is the pipe. Ours is the only other end: it is closed on exec in every child.
    watchdog: Child,
    number: i32,
    /// Whether the kill is still to come. After it the number may be anybody's.
    is_alive: bool,
}

impl Group {
    /// Starts the watchdog in a group of its own, and waits until it watches.
    pub(super) async fn form() -> io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", WATCH]).env_clear().current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut watchdog = command.spawn()?;
        let said = watchdog.stdout.take();
        let number = watchdog.id().and_then(|id| i32::try_from(id).ok());
        let number = number.ok_or_else(|| io::Error::other("a process without a number"))?;
        let group = Self { watchdog, number, is_alive: true };
        match said {
            Some(mut said) => _ = said.read_u8().await?,
            None => return Err(io::Error::other("a process without the pipe that it was given")),
        }
        Ok(group)
    }

    /// Its number, for processes that are to join it.
    pub(super) fn id(&self) -> i32 {
        self.number
    }

    /// Kills what is left of it, and waits for the watchdog.
    pub(super) async fn end(&mut self) {
        self.kill();
        // It cannot fail to be waited for; if it did, the runtime would reap it later.
        drop(self.watchdog.wait().await);
    }

    /// What the watchdog sees when this process is killed.
    #[cfg(test)]
    pub(super) fn sever(&mut self) {
        drop(self.watchdog.stdin.take());
    }

    fn kill(&mut self) {
        if std::mem::replace(&mut self.is_alive, false)
            && let Some(number) = Pid::from_raw(self.number)
        {
            // Fails only for a group without processes, and then there is nothing to kill.
            _ = kill_process_group(number, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
