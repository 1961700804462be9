//! The two databases, and the service on each of them.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use bench_kit::monotonic_ns;
use countersign::{Store, SystemClock};
use countersign_store::{MasterKey, PostgresAddress, PostgresStore, SqliteOptions, SqliteStore};

use crate::http::Client;

const KEY: &str = "key";
const FILE: &str = "countersign.db";
/// Memory as a file system: what is written there waits for no disk.
const MEMORY: &str = "/dev/shm";

/// Where the runs are.
pub(crate) enum Database {
    Sqlite,
    Postgres(Postgres),
}

/// A folder with a configuration, and its database.
pub(crate) struct Place {
    pub(crate) folder: PathBuf,
    pub(crate) database: Database,
    countersign: PathBuf,
}

impl Place {
    pub(crate) fn new(
        data: &Path,
        countersign: &Path,
        database: Database,
        others: SocketAddr,
    ) -> Result<Self> {
        let folder = data.join("place");
        fs::create_dir_all(&folder)?;
        let address = match &database {
            Database::Sqlite => format!("sqlite:{FILE}"),
            Database::Postgres(server) => server.address(),
        };
        let agent = |name: &str| format!("[agents.{name}]\nmodels = [\"stub/scripted\"]\n\n");
        fs::write(
            folder.join("countersign.toml"),
            format!(
                "database = \"{address}\"\nkey_file = \"{KEY}\"\n\n[providers.stub]\nkind = \"openai\"\n\
                 base_url = \"http://{others}/v1\"\nzone = \"local\"\n\n{}{}[[tools]]\nname = \"page_drop\"\n\
                 description = \"Delete a page\"\ngroup = \"content\"\neffect = \"write\"\nhttp = \"http://{others}/page_drop\"\n\
                 parameters = {{ type = \"object\", properties = {{ id = {{ type = \"integer\" }} }}, required = [\"id\"] }}\n\
                 data_class = \"editor_content\"\n",
                agent("default"),
                agent(crate::fill::RARE),
            ),
        )?;
        Ok(Self { folder, database, countersign: countersign.to_owned() })
    }

    /// A command of the program here.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.countersign);
        command.args(words).current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    /// What a command prints.
    pub(crate) fn says(&self, words: &[&str]) -> Result<String> {
        let output = self.command(words).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{words:?}: {said}{}", String::from_utf8_lossy(&output.stdout));
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// The store, opened in this process.
    pub(crate) async fn open(&self) -> Result<Arc<dyn Store>> {
        let text = fs::read_to_string(self.folder.join(KEY))?;
        let bytes = base64::engine::general_purpose::STANDARD.decode(text.trim())?;
        let key = MasterKey::new(bytes.try_into().ok().context("no key")?);
        Ok(match &self.database {
            Database::Sqlite => Arc::new(SqliteStore::open(
                SqliteOptions::new(self.folder.join(FILE)),
                key,
                Arc::new(SystemClock),
            )?),
            Database::Postgres(server) => {
                let address = PostgresAddress::parse(&server.address())?;
                Arc::new(PostgresStore::open(address, key, Arc::new(SystemClock)).await?)
            }
        })
    }

    /// Lets nobody wait for the disk while the database is filled, without the store knowing.
    pub(crate) fn begin_to_fill(&self) -> Result<()> {
        match &self.database {
            Database::Sqlite => self.move_file(&self.folder.join(FILE), &in_memory()),
            Database::Postgres(server) => server.restart("-c fsync=off"),
        }
    }

    /// What was filled is on the disk, and PostgreSQL knows how much of what there is.
    pub(crate) async fn filled(&self) -> Result<()> {
        match &self.database {
            Database::Sqlite => {
                self.move_file(&in_memory(), &self.folder.join(FILE))?;
                fs::File::open(self.folder.join(FILE))?.sync_all()?;
            }
            Database::Postgres(server) => {
                let client = server.connect().await?;
                client.batch_execute("VACUUM ANALYZE").await?;
                client.batch_execute("CHECKPOINT").await?;
                server.restart("")?;
            }
        }
        run(&mut Command::new("sync"))
    }

    /// A link stands where the file is meanwhile, because the store is told its place.
    fn move_file(&self, from: &Path, to: &Path) -> Result<()> {
        if !Path::new(MEMORY).is_dir() {
            return Ok(());
        }
        let place = self.folder.join(FILE);
        // Who had it open may have ended without taking the log into the file.
        let connection = rusqlite::Connection::open(from)?;
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        connection.close().map_err(|(_, error)| error)?;
        if to == place {
            fs::remove_file(&place)?;
        }
        fs::copy(from, to)?;
        fs::remove_file(from)?;
        if from == place {
            std::os::unix::fs::symlink(to, &place)?;
        }
        Ok(())
    }

    /// How large it is, in MB.
    pub(crate) async fn megabytes(&self) -> Result<f64> {
        let bytes = match &self.database {
            Database::Sqlite => fs::metadata(self.folder.join(FILE))?.len() as f64,
            Database::Postgres(server) => {
                let row = server
                    .connect()
                    .await?
                    .query_one("SELECT pg_database_size(current_database())", &[])
                    .await?;
                row.get::<_, i64>(0) as f64
            }
        };
        Ok(bytes / 1e6)
    }

    /// Milliseconds of one commit that waits for this disk, of 1 kB, by the database's own client and nothing around it.
    pub(crate) async fn commits(&self, count: u32) -> Result<Vec<f64>> {
        let value = vec![7_u8; 1000];
        let mut each = Vec::new();
        match &self.database {
            Database::Sqlite => {
                let connection = rusqlite::Connection::open(self.folder.join("commits.db"))?;
                connection.pragma_update(None, "journal_mode", "WAL")?;
                connection.pragma_update(None, "synchronous", "FULL")?;
                connection.execute_batch("CREATE TABLE IF NOT EXISTS commits (value BLOB NOT NULL)")?;
                let mut insert = connection.prepare("INSERT INTO commits VALUES (?1)")?;
                for _ in 0..count {
                    let began = monotonic_ns();
                    insert.execute([&value])?;
                    each.push((monotonic_ns() - began) as f64 / 1e6);
                }
            }
            Database::Postgres(server) => {
                let client = server.connect().await?;
                client
                    .batch_execute("CREATE TABLE IF NOT EXISTS public.commits (value BYTEA NOT NULL)")
                    .await?;
                let insert = client.prepare("INSERT INTO public.commits VALUES ($1)").await?;
                for _ in 0..count {
                    let began = monotonic_ns();
                    client.execute(&insert, &[&value]).await?;
                    each.push((monotonic_ns() - began) as f64 / 1e6);
                }
            }
        }
        Ok(each)
    }

    /// Who commits for this service: its own process, or its backends of PostgreSQL.
    pub(crate) async fn committers(&self, serve: &Serve) -> Result<Vec<i32>> {
        match &self.database {
            Database::Sqlite => Ok(vec![serve.process()]),
            Database::Postgres(server) => {
                let query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'countersign'";
                Ok(server.connect().await?.query(query, &[]).await?.iter().map(|row| row.get(0)).collect())
            }
        }
    }

    /// Starts the service and says how many milliseconds later it was ready.
    pub(crate) fn serve(&self) -> Result<(Serve, f64)> {
        self.start("serve")
    }

    /// The same for either process that works.
    pub(crate) fn start(&self, which: &str) -> Result<(Serve, f64)> {
        let at = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        let began = monotonic_ns();
        let mut command = self.command(&[which, "--listen", &at.to_string()]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("starting it")?;
        let mut serve = Serve { child, at };
        let until = Instant::now() + Duration::from_secs(60);
        while Instant::now() < until && serve.child.try_wait()?.is_none() {
            let ready = Client::connect(at, None).and_then(|mut client| client.ask("GET /readyz", "", ""));
            if ready.is_ok_and(|answer| answer.status == 200) {
                return Ok((serve, (monotonic_ns() - began) as f64 / 1e6));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        bail!("{which} is not ready")
    }
}

fn in_memory() -> PathBuf {
    Path::new(MEMORY).join(format!("countersign-bench-{}.db", std::process::id()))
}

impl Database {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres(_) => "PostgreSQL",
        }
    }
}

/// The service, running. It ends with this.
pub(crate) struct Serve {
    child: Child,
    pub(crate) at: SocketAddr,
}

impl Serve {
    fn process(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Resident memory, in MB.
    pub(crate) fn megabytes(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1000.0)
    }

    /// Waits until it does nothing any more, and says how many seconds of CPU it has used so far.
    pub(crate) fn cpu_when_idle(&self) -> Result<f64> {
        let mut before = self.cpu()?;
        loop {
            std::thread::sleep(Duration::from_secs(2));
            let now = self.cpu()?;
            // A sweep a second costs something.
            if now - before < 0.05 {
                return Ok(now);
            }
            before = now;
        }
    }

    fn cpu(&self) -> Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process()))?;
        let (_, rest) = stat.rsplit_once(')').context("no stat")?;
        let ticks = rest.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
        Ok(ticks.sum::<Result<f64, _>>()? / rustix::param::clock_ticks_per_second() as f64)
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        // It is told to end, so that its database is one file afterwards. Nobody can do anything about a failure.
        let process = rustix::process::Pid::from_child(&self.child);
        _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        for _ in 0..1000 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A PostgreSQL of its own, on a socket in a folder of its own. It ends with this.
pub(crate) struct Postgres {
    programs: PathBuf,
    folder: PathBuf,
}

impl Postgres {
    /// Its files lie on the disk of the checkout; PostgreSQL does not work for root, so it is given to `postgres`.
    pub(crate) fn make(data: &Path) -> Result<Self> {
        let versions = fs::read_dir("/usr/lib/postgresql").context("no PostgreSQL in /usr/lib/postgresql")?;
        let newest = versions
            .filter_map(|version| {
                let path = version.ok()?.path();
                Some((path.file_name()?.to_str()?.parse::<u32>().ok()?, path.join("bin")))
            })
            .max();
        let programs = newest.context("no PostgreSQL in /usr/lib/postgresql")?.1;
        let folder = data.join("pg");
        fs::create_dir_all(&folder)?;
        if rustix::process::geteuid().is_root() {
            run(Command::new("chown").arg("postgres").arg(&folder))?;
        }
        let server = Self { programs, folder };
        let made = ["-U", "countersign", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8"];
        run(server.command("initdb").arg("-D").arg(server.data()).args(made))?;
        server.start("")?;
        Ok(server)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn command(&self, program: &str) -> Command {
        let program = self.programs.join(program);
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    fn start(&self, more: &str) -> Result<()> {
        let options =
            format!("-c listen_addresses= -c unix_socket_directories={} {more}", self.folder.display());
        let mut start = self.command("pg_ctl");
        start.args(["-w", "-t", "60", "start", "-D"]).arg(self.data()).arg("-l").arg(self.folder.join("log"));
        // Its children keep what they are given, so they are given nothing.
        run(start.arg("-o").arg(options).stdout(Stdio::null()).stderr(Stdio::null()))
    }

    fn stop(&self) -> Result<()> {
        run(self.command("pg_ctl").args(["-w", "-m", "fast", "stop", "-D"]).arg(self.data()))
    }

    pub(crate) fn restart(&self, more: &str) -> Result<()> {
        self.stop()?;
        self.start(more)
    }

    fn address(&self) -> String {
        format!("postgres://countersign@/postgres?host={}", self.folder.display())
    }

    async fn connect(&self) -> Result<tokio_postgres::Client> {
        let (client, connection) = tokio_postgres::connect(&self.address(), tokio_postgres::NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.stop());
    }
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.stdout(Stdio::null()).status().with_context(|| format!("starting {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}
