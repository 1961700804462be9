//! The processes: the model that all of them ask, and a fresh one for each sample.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use bench_kit::monotonic_ns;
use serde_json::Value;

/// A peer: its program beside this one, and the words that choose what it is.
pub(crate) const FLOOR: &[&str] = &["floor"];
pub(crate) const RIG: &[&str] = &["rig"];
pub(crate) const MEMORY: &[&str] = &["ours", "memory"];
pub(crate) const SQLITE: &[&str] = &["ours", "sqlite"];

/// Says how far it is.
pub(crate) fn progress(what: &str) {
    eprintln!("── {what}");
}

/// The model, running, and where the peers are. It ends with this.
pub(crate) struct Bed {
    model: Child,
    address: String,
    /// With all the programs.
    programs: PathBuf,
    countersign: PathBuf,
    /// Made anew, and removed at the end.
    data: PathBuf,
}

impl Bed {
    pub(crate) fn set_up(countersign: PathBuf) -> Result<Self> {
        let countersign =
            countersign.canonicalize().with_context(|| format!("finding {}", countersign.display()))?;
        let programs = std::env::current_exe()?.parent().context("no folder")?.to_owned();
        let data = bench_kit::data_folder()?.parent().context("no folder")?.to_owned();
        std::fs::remove_dir_all(&data)?;
        std::fs::create_dir_all(&data)?;
        let mut model = Command::new(programs.join("mock"))
            .arg("0")
            .stdout(Stdio::piped())
            .spawn()
            .context("starting mock")?;
        let mut address = String::new();
        BufReader::new(model.stdout.take().context("no output")?).read_line(&mut address)?;
        let address = address.trim().to_owned();
        Ok(Self { model, address, programs, countersign, data })
    }

    fn command(&self, peer: &[&str], words: &[&str]) -> Command {
        let mut command = Command::new(self.programs.join(peer[0]));
        command.args(&peer[1..]).args(words).env("BENCH_MODEL", &self.address);
        command
    }

    /// What a peer prints.
    pub(crate) fn samples(&self, peer: &[&str], words: &[&str]) -> Result<Vec<Value>> {
        samples(self.command(peer, words))
    }

    /// The one sample that a peer prints, where `lookup` answers so many bytes.
    pub(crate) fn sample_with(
        &self,
        result_bytes: Option<u32>,
        peer: &[&str],
        words: &[&str],
    ) -> Result<Value> {
        let mut command = self.command(peer, words);
        if let Some(bytes) = result_bytes {
            command.env("BENCH_RESULT_BYTES", bytes.to_string());
        }
        samples(command)?.pop().context("no sample")
    }

    /// How often a peer waits for the disk.
    pub(crate) fn syncs(&self, peer: &[&str], words: &[&str]) -> Result<f64> {
        let counts = self.data.join("syncs");
        let plain = self.command(peer, words);
        let mut traced = Command::new("strace");
        traced.args(["-f", "-c", "-e", "trace=fsync,fdatasync", "-o"]).arg(&counts);
        traced.arg(plain.get_program()).args(plain.get_args()).env("BENCH_MODEL", &self.address);
        samples(traced)?;
        // % time, seconds, usecs/call, calls, perhaps errors, syscall
        let calls = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_sync = words.last().is_some_and(|name| ["fsync", "fdatasync"].contains(name));
            is_sync.then(|| words.get(3)?.parse::<f64>().ok()).flatten()
        };
        Ok(std::fs::read_to_string(counts)?.lines().filter_map(calls).sum())
    }

    /// Milliseconds from starting a peer to its first request.
    pub(crate) fn first_request(&self, peer: &[&str], words: &[&str]) -> Result<f64> {
        self.until_request(&mut self.command(peer, words))
    }

    /// A folder with a configuration of one provider, and nothing else yet.
    pub(crate) fn project(&self) -> Result<PathBuf> {
        let count = std::fs::read_dir(&self.data)?.count();
        let folder = self.data.join(format!("project-{count}"));
        std::fs::create_dir(&folder)?;
        let configuration = format!(
            "[providers.mock]\nkind = \"openai\"\nbase_url = \"{}/v1\"\nzone = \"local\"\n\n\
             [agents.default]\nmodels = [\"mock/loop-0\"]\n",
            self.address
        );
        std::fs::write(folder.join("countersign.toml"), configuration)?;
        Ok(folder)
    }

    /// Milliseconds from starting `countersign run` to its first request.
    pub(crate) fn first_request_of_countersign(&self, project: &Path) -> Result<f64> {
        self.until_request(Command::new(&self.countersign).args(["run", "Do the work."]).current_dir(project))
    }

    fn until_request(&self, command: &mut Command) -> Result<f64> {
        let before = self.seen()?;
        let started = monotonic_ns();
        let output =
            command.stdin(Stdio::null()).output().with_context(|| format!("starting {command:?}"))?;
        ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        let after = self.seen()?;
        ensure!(after.requests == before.requests + 1, "{command:?} asked the model more than once");
        Ok((after.last_ns - started) as f64 / 1e6)
    }

    fn seen(&self) -> Result<Seen> {
        let mut socket = TcpStream::connect(self.address.trim_start_matches("http://"))?;
        socket.write_all(b"GET /stats HTTP/1.1\r\nhost: mock\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").context("no answer of the model")?;
        let body: Value = serde_json::from_str(body)?;
        let requests = body["requests"].as_u64().context("no requests")?;
        Ok(Seen { requests, last_ns: body["last_ns"].as_i64().context("no time")? })
    }
}

/// What the model has seen.
struct Seen {
    requests: u64,
    last_ns: i64,
}

impl Drop for Bed {
    fn drop(&mut self) {
        // At the end of the program nobody can do anything about either.
        drop(self.model.kill());
        drop(self.model.wait());
        drop(std::fs::remove_dir_all(&self.data));
    }
}

fn samples(mut command: Command) -> Result<Vec<Value>> {
    let output =
        command.stderr(Stdio::inherit()).output().with_context(|| format!("starting {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed");
    let samples: Vec<Value> = output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(serde_json::from_slice)
        .collect::<Result<_, _>>()?;
    ensure!(!samples.is_empty(), "{command:?} printed nothing");
    Ok(samples)
}

/// A database that its program has left.
pub(crate) struct Stored(rusqlite::Connection);

impl Stored {
    /// With all that is still in the log beside the file.
    pub(crate) fn open(sample: &Value) -> Result<Self> {
        let database = rusqlite::Connection::open(sample["database"].as_str().context("no database")?)?;
        database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(Self(database))
    }

    /// All of its tables and indexes, in bytes, with the free space within them.
    pub(crate) fn bytes(&self) -> Result<f64> {
        Ok(self.0.query_row("SELECT sum(pgsize) FROM dbstat", [], |row| row.get(0))?)
    }

    /// The largest of them.
    pub(crate) fn largest(&self) -> Result<Vec<(String, f64)>> {
        let by_size = "SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC LIMIT 3";
        let mut by_size = self.0.prepare(by_size)?;
        let rows = by_size.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}
