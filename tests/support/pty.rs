//! A terminal with the program in it.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::{Folder, until};

/// A running program and what stands on its screen.
pub(crate) struct Terminal {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    child: Child,
}

impl Terminal {
    /// Starts the program with a terminal as its stdin, stdout and stderr.
    pub(crate) fn start(folder: &Folder, arguments: &[&str]) -> Self {
        let master: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let side = || OpenOptions::new().read(true).write(true).open(&name).unwrap();
        let child = folder
            .command(arguments)
            .env("TERM", "xterm")
            .stdin(Stdio::from(side()))
            .stdout(Stdio::from(side()))
            .stderr(Stdio::from(side()))
            .spawn()
            .unwrap();
        let screen: Arc<Mutex<String>> = Arc::default();
        let shown = Arc::clone(&screen);
        let mut from = File::from(master.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The other side going away reads as an error.
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { keyboard: File::from(master), screen, child }
    }

    pub(crate) fn screen(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    /// Returns once this stands on the screen.
    pub(crate) fn wait_for(&self, text: &str) {
        until(&format!("{text:?} on the screen"), || self.screen().contains(text).then_some(()));
    }

    pub(crate) fn types(&mut self, line: &str) {
        self.types_bytes(format!("{line}\n").as_bytes());
    }

    pub(crate) fn types_bytes(&mut self, bytes: &[u8]) {
        self.keyboard.write_all(bytes).unwrap();
    }

    pub(crate) fn interrupt(&self) {
        interrupt(&self.child);
    }

    /// The exit status, once it has ended.
    pub(crate) fn exit(&mut self) -> i32 {
        let child = &mut self.child;
        until("the end of the program", || child.try_wait().unwrap()).code().unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What Ctrl-C does.
pub(crate) fn interrupt(child: &Child) {
    signal(child, Signal::INT);
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
}
