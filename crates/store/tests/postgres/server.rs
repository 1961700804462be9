//! A private PostgreSQL for this process: made when the first test asks for it, gone when the process ends.
//!
//! It listens on a socket in its own folder, and in TLS on a port of this machine, as `localhost` and nobody else. Who runs it as root has it run as the account `postgres`, because
//! PostgreSQL refuses to work for root. A watcher, a shell that reads a pipe which nobody writes to, sees the end of
//! this process however it comes, also by a kill, stops the server and removes the folder.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// What stops the server and tidies up, once its standard input ends.
const WATCHER: &str = r#"cat >/dev/null; "$@" >/dev/null 2>&1; rm -rf -- "$FOLDER""#;

pub(crate) struct Server {
    pub(crate) folder: PathBuf,
    pub(crate) port: u16,
    databases: AtomicU32,
    _watcher: Child,
}

/// The server of this process.
pub(crate) fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::start)
}

impl Server {
    fn start() -> Self {
        let programs = programs();
        let folder = tempfile::Builder::new().prefix("countersign-pg.").tempdir().unwrap().keep();
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            run(Command::new("chown").arg("postgres").arg(&folder));
        } else {
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let command = |program: &str| {
            let program = programs.join(program);
            let mut command = if is_root {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]).arg(program);
                command
            } else {
                Command::new(program)
            };
            command.current_dir(&folder).stdin(Stdio::null());
            command
        };
        let data = folder.join("data");
        run(command("initdb").arg("-D").arg(&data).args([
            "-U",
            "countersign",
            "-A",
            "trust",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
        ]));
        let (certificate, key) = (folder.join("server.pem"), folder.join("server.key"));
        certified(&folder.join("root.pem"), &certificate, &key);
        if is_root {
            run(Command::new("chown").arg("postgres").args([&certificate, &key]));
        }
        // Nobody else takes it within the moment until the server does.
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        // A disk that is never waited for: what a power cut would lose is not what these tests are about.
        let options = format!(
            "-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories={} -c fsync=off \
             -c full_page_writes=off -c max_connections=200 -c log_line_prefix=%d: -c ssl=on -c ssl_cert_file={} -c ssl_key_file={}",
            folder.display(),
            certificate.display(),
            key.display()
        );
        let mut stop = command("pg_ctl");
        stop.args(["-m", "immediate", "stop", "-D"]).arg(&data);
        let mut watcher = Command::new("sh");
        watcher.args(["-c", WATCHER, "watcher"]).arg(stop.get_program()).args(stop.get_args());
        watcher.env("FOLDER", &folder).current_dir("/").stdin(Stdio::piped());
        let watcher = watcher.spawn().unwrap();
        run(command("pg_ctl")
            .args(["-w", "-t", "60", "start", "-D"])
            .arg(&data)
            .arg("-l")
            .arg(folder.join("log"))
            .arg("-o")
            .arg(options));
        let server = Self { folder, port, databases: AtomicU32::new(0), _watcher: watcher };
        server.ask("postgres", "SELECT 1");
        server
    }

    /// The address of one of its databases.
    pub(crate) fn address(&self, database: &str) -> String {
        format!("postgres://countersign@/{database}?host={}&port={}", self.folder.display(), self.port)
    }

    /// A new database, empty, or a copy of another one.
    pub(crate) fn database(&self, template: Option<&str>) -> String {
        let name = format!("t{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.ask("postgres", &format!("CREATE DATABASE {name} TEMPLATE {}", template.unwrap_or("template0")));
        name
    }

    /// Asks with PostgreSQL's own client, bound by nothing, and gives back what it prints.
    pub(crate) fn ask(&self, database: &str, statements: &str) -> String {
        let mut psql = Command::new(programs().join("psql"));
        psql.arg("-h").arg(&self.folder).args(["-p", &self.port.to_string()]).args([
            "-U",
            "countersign",
            "-d",
            database,
            "-X",
            "-q",
            "-t",
            "-A",
        ]);
        psql.args([
            "-v",
            "ON_ERROR_STOP=1",
            "-c",
            "SET search_path = countersign; SET session_replication_role = replica",
        ]);
        psql.args(["-c", statements]);
        run(&mut psql)
    }
}

/// Makes an authority, and has it certify `localhost`.
pub(crate) fn certified(root: &Path, certificate: &Path, key: &Path) {
    let mut authority = CertificateParams::new([]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let server_key = KeyPair::generate().unwrap();
    fs::write(root, authority.self_signed(&authority_key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let server = CertificateParams::new(["localhost".to_owned()]).unwrap();
    fs::write(certificate, server.signed_by(&server_key, &issuer).unwrap().pem()).unwrap();
    fs::write(key, server_key.serialize_pem()).unwrap();
    fs::set_permissions(key, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Where PostgreSQL's programs are: the newest that is installed.
fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
        let found = versions.filter_map(|version| {
            let programs = version.ok()?.path();
            let number: u32 = programs.file_name()?.to_str()?.parse().ok()?;
            let programs = programs.join("bin");
            ["initdb", "pg_ctl", "psql"]
                .iter()
                .all(|name| programs.join(name).exists())
                .then_some((number, programs))
        });
        found.max().map(|(_, programs)| programs).expect(
            "these tests start a PostgreSQL of their own, and there is none in /usr/lib/postgresql: \
             run scripts/set-up tests, or install the package postgresql",
        )
    })
}

fn run(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        done.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8(done.stdout).unwrap()
}
