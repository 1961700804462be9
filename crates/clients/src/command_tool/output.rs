//! What a command writes.
//!
//! Invariant: both pipes are read to their ends, so that no command waits for us; what is kept of either is
//! bounded.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;

use countersign::{DETAIL_BYTES_MAX, Detail, ToolContent};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{ChildStderr, ChildStdout};

use crate::kept::{Beginning, Kept, NotUtf8, READ_BYTES_MAX, Utf8};

/// How much is read at once: what a pipe holds.
const PIECE_BYTES: usize = 64 * 1024;
/// How much of the end of the error output is kept, in bytes: enough to see that there was more than is stored.
const TAIL_BYTES: usize = DETAIL_BYTES_MAX + 1;

/// Both outputs of a command.
pub(super) struct Output {
    stdout: Pipe<ChildStdout, Text>,
    stderr: Pipe<ChildStderr, Tail>,
}

impl Output {
    pub(super) fn new(stdout: ChildStdout, stderr: ChildStderr) -> Self {
        Self { stdout: Pipe::new(stdout), stderr: Pipe::new(stderr) }
    }

    /// Reads for as long as there is something to read, or may be. Returns only when it was too much. Nothing
    /// is lost when it is dropped.
    pub(super) async fn read(&mut self) {
        tokio::select! {
            () = self.stdout.read() => {}
            () = self.stderr.read() => {}
        }
    }

    /// Reads what is there, without waiting for more.
    pub(super) fn drain(&mut self) {
        self.stdout.drain();
        self.stderr.drain();
    }

    /// The standard output; or, where it is no text, what the record keeps of it.
    pub(super) fn into_content(self) -> Result<ToolContent, Detail> {
        let Text { utf8, kept, beginning } = self.stdout.sink;
        match utf8.and_then(Utf8::end) {
            Ok(()) => Ok(kept.into_content()),
            Err(NotUtf8) => Err(beginning.detail("not UTF-8; its output:")),
        }
    }

    /// How it ended, and what it wrote about that for people: the end of its error output, or else the beginning
    /// of its output.
    pub(super) fn last_words(&self, ended: &str) -> Detail {
        if self.stderr.sink.0.is_empty() {
            return self.stdout.sink.beginning.detail(ended);
        }
        self.errors(ended)
    }

    /// How it ended, and the end of its error output alone.
    pub(super) fn errors(&self, ended: &str) -> Detail {
        let (first, second) = self.stderr.sink.0.as_slices();
        Detail::end_of(ended, [first, second].concat().trim_ascii_end())
    }
}

/// Takes pieces.
trait Sink: Default {
    fn push(&mut self, bytes: &[u8]);
}

/// A text from its beginning.
struct Text {
    utf8: Result<Utf8, NotUtf8>,
    kept: Kept,
    beginning: Beginning,
}

impl Default for Text {
    fn default() -> Self {
        Self { utf8: Ok(Utf8::default()), kept: Kept::default(), beginning: Beginning::default() }
    }
}

impl Sink for Text {
    fn push(&mut self, bytes: &[u8]) {
        self.beginning.push(bytes);
        let Ok(utf8) = &mut self.utf8 else { return };
        match utf8.read(bytes) {
            Ok(piece) => self.kept.push(&piece),
            Err(error) => self.utf8 = Err(error),
        }
    }
}

/// The end of a text.
#[derive(Default)]
struct Tail(VecDeque<u8>);

impl Sink for Tail {
    fn push(&mut self, bytes: &[u8]) {
        self.0.extend(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]);
        self.0.drain(..self.0.len().saturating_sub(TAIL_BYTES));
    }
}

/// One pipe, and what was kept of it.
struct Pipe<P, S> {
    pipe: P,
    piece: Vec<u8>,
    read: u64,
    sink: S,
}

impl<P: AsyncRead + AsFd + Unpin, S: Sink> Pipe<P, S> {
    fn new(pipe: P) -> Self {
        Self { pipe, piece: vec![0; PIECE_BYTES], read: 0, sink: S::default() }
    }

    /// Returns only when it was too much.
    async fn read(&mut self) {
        loop {
            let Ok(length @ 1..) = self.pipe.read(&mut self.piece).await else {
                // At its end. The command may still be at work.
                return std::future::pending().await;
            };
            if self.is_too_much(length) {
                return;
            }
        }
    }

    fn drain(&mut self) {
        loop {
            // Tokio has made the pipe non-blocking. Its own readiness may lag behind what the pipe holds.
            match rustix::io::read(&self.pipe, &mut self.piece).map_err(io::Error::from) {
                Ok(0) => return,
                Ok(length) if self.is_too_much(length) => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    fn is_too_much(&mut self, length: usize) -> bool {
        self.read += length as u64;
        self.sink.push(&self.piece[..length]);
        self.read > READ_BYTES_MAX
    }
}
