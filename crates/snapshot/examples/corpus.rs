//! Creates the corpus of real files. `corpus OUT NAME=FOLDER…` starts the etcd of each directory, writes data of
//! several scenarios, and stores its compressed snapshots. A table records what etcd's tools and range reads
//! report about them. No test runs it.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use etcd_operator_snapshot::content::{Digest, ServedKey};
use serde_json::Value;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let out = PathBuf::from(arguments.next().expect("the output directory"));
    let mut table = String::new();
    for argument in arguments {
        let (version, directory) = argument.split_once('=').expect("NAME=FOLDER");
        for scenario in [
            Scenario::Fresh,
            Scenario::Tombstone,
            Scenario::NoSpace,
            Scenario::Full,
        ] {
            let etcd = Etcd::start(version, Path::new(directory), scenario);
            table += &etcd.run(&out);
            fs::write(out.join("table.tsv"), &table).expect("cannot write the table");
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Scenario {
    Fresh,
    Tombstone,
    NoSpace,
    Full,
}

impl Scenario {
    fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Tombstone => "tombstone",
            Self::NoSpace => "nospace",
            Self::Full => "full",
        }
    }
}

struct Etcd {
    version: String,
    directory: PathBuf,
    scenario: Scenario,
    data: PathBuf,
    endpoint: String,
    user: Option<&'static str>,
    child: Child,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.data);
    }
}

fn free_port() -> u16 {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    socket.local_addr().expect("it has an address").port()
}

impl Etcd {
    fn start(version: &str, directory: &Path, scenario: Scenario) -> Self {
        let data = std::env::temp_dir().join(format!("corpus-{version}-{}", scenario.name()));
        let _ = fs::remove_dir_all(&data);
        let (endpoint, peer) = (
            format!("http://127.0.0.1:{}", free_port()),
            format!("http://127.0.0.1:{}", free_port()),
        );
        let quota = if scenario == Scenario::NoSpace {
            "200000"
        } else {
            "0"
        };
        let child = Command::new(directory.join("etcd"))
            .args(["--name", "m", "--quota-backend-bytes", quota])
            .arg("--data-dir")
            .arg(&data)
            .args([
                "--listen-client-urls",
                &endpoint,
                "--advertise-client-urls",
                &endpoint,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args(["--initial-cluster", &format!("m={peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd starts");
        let etcd = Self {
            version: version.to_owned(),
            directory: directory.to_owned(),
            scenario,
            data,
            endpoint,
            user: None,
            child,
        };
        etcd.retry(&["endpoint", "health"]);
        etcd
    }

    fn is_at_least(&self, minor: &str) -> bool {
        self.version.as_str() >= minor
    }

    fn run_tool(&self, tool: &str, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut child = Command::new(self.directory.join(tool))
            .env("ETCDCTL_API", "3")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("etcd's tool starts");
        let mut stdin = child.stdin.take().expect("it has an input");
        stdin.write_all(input.as_bytes()).expect("it reads its input");
        drop(stdin);
        let output = child.wait_with_output().expect("it ends");
        if output.status.success() {
            return Ok(String::from_utf8(output.stdout).expect("text"));
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn try_etcdctl(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut all = vec![
            "--endpoints",
            &self.endpoint,
            "--command-timeout=60s",
            "--dial-timeout=30s",
        ];
        all.extend(self.user.iter().flat_map(|user| ["--user", user]));
        all.extend(arguments);
        self.run_tool("etcdctl", &all, input)
    }

    fn etcdctl(&self, arguments: &[&str]) -> String {
        self.try_etcdctl(arguments, "")
            .unwrap_or_else(|error| panic!("{} {arguments:?}: {error}", self.version))
    }

    fn retry(&self, arguments: &[&str]) {
        let done = (0..200).any(|_| self.try_etcdctl(arguments, "").is_ok());
        assert!(done, "{} {arguments:?}", self.version);
    }

    fn txn(&self, requests: impl Iterator<Item = String>) {
        let requests: String = requests.map(|request| request + "\n").collect();
        self.try_etcdctl(&["txn"], &format!("\n{requests}\n\n"))
            .expect("a transaction");
    }

    fn put_large(&self, key: &str, lines: usize) -> Result<String, String> {
        let lines: Vec<String> = (0..lines)
            .map(|line| format!("line {line} of a large value\n"))
            .collect();
        let value = lines.concat();
        self.try_etcdctl(&["put", key], &value)
    }

    fn revision(&self) -> String {
        self.served()["header"]["revision"].to_string()
    }

    fn served(&self) -> Value {
        let text = self.etcdctl(&["get", "", "--from-key", "-w", "json"]);
        serde_json::from_str(&text).expect("JSON")
    }

    fn run(mut self, out: &Path) -> String {
        match self.scenario {
            Scenario::Fresh => {}
            Scenario::Tombstone => {
                for arguments in [
                    &["put", "colour", "red"][..],
                    &["put", "colour", "blue"],
                    &["del", "colour"],
                ] {
                    self.etcdctl(arguments);
                }
                self.etcdctl(&["compact", &self.revision(), "--physical"]);
            }
            Scenario::NoSpace => {
                let is_full = (0..50).any(|_| self.put_large("large", 2000).is_err());
                assert!(is_full && self.etcdctl(&["alarm", "list"]).contains("NOSPACE"));
            }
            Scenario::Full => self.write_everything(),
        }
        let name = format!("{}-{}", self.version, self.scenario.name());
        let file = std::env::temp_dir().join(format!("{name}.db"));
        let path = file.to_str().expect("text").to_owned();
        let _ = fs::remove_file(&file);
        self.retry(&["snapshot", "save", &path]);
        let served = self.served();
        let mut rows = self.store_file(out, &name, &path, &served);
        if self.scenario == Scenario::Full {
            let _ = self.child.kill();
            let _ = self.child.wait();
            fs::copy(self.data.join("member/snap/db"), &file).expect("etcd's own file is there");
            rows += &self.store_file(out, &format!("{}-copied", self.version), &path, &served);
        }
        let _ = fs::remove_file(&file);
        rows
    }

    fn write_everything(&mut self) {
        let pod = |number: usize| format!("/registry/pods/shop/cart-{number}");
        self.txn((0..100).map(|n| format!("put {} pod-{n}", pod(n))));
        self.txn((0..100).map(|n| format!("put /registry/secrets/shop/token-{n} secret-{n}-{}", n * n)));
        self.txn((0..90).map(|n| {
            if n < 80 {
                format!("put {} changed-{n}", pod(n))
            } else {
                format!("del {}", pod(n))
            }
        }));
        self.etcdctl(&["put", "colour", "red"]);
        let lease = self.etcdctl(&["lease", "grant", "360000"]);
        let lease = lease.split_whitespace().nth(1).expect("an ID").to_owned();
        self.etcdctl(&["put", "leased", "for a while", &format!("--lease={lease}")]);
        self.etcdctl(&["compact", &self.revision(), "--physical"]);
        self.etcdctl(&["put", "colour", "blue"]);
        self.etcdctl(&["del", &pod(3)]);
        self.txn((0..60).map(|n| format!("put /registry/events/shop/event-{n} happened")));
        self.put_large("large", 800).expect("a large value");
        self.put_large("larger", 12_000).expect("a larger value");
        if self.is_at_least("3.4") {
            let add = [
                "member",
                "add",
                "spare",
                "--peer-urls=http://127.0.0.1:9",
                "--learner",
            ];
            self.retry(&add);
            let list = self.etcdctl(&["member", "list"]);
            let id = list
                .lines()
                .find(|line| line.contains("127.0.0.1:9,"))
                .expect("the learner");
            let id = id.split(',').next().expect("an ID").to_owned();
            self.retry(&["member", "remove", &id]);
            self.retry(&add);
        }
        for arguments in [
            &["user", "add", "root:pw"][..],
            &["user", "add", "ann:pw"],
            &["role", "add", "reader"],
            &["role", "grant-permission", "reader", "read", "colour"],
            &["user", "grant-role", "ann", "reader"],
            &["auth", "enable"],
        ] {
            self.etcdctl(arguments);
        }
        self.user = Some("root:pw");
    }

    /// Stores a file and returns its row: name; revision, keys and hash as printed by etcd's tool; revision
    /// and digest as served.
    fn store_file(&self, out: &Path, name: &str, path: &str, served: &Value) -> String {
        let tool = if self.is_at_least("3.5") {
            "etcdutl"
        } else {
            "etcdctl"
        };
        let status = self.run_tool(tool, &["snapshot", "status", path, "-w", "json"], "");
        let status: Value = serde_json::from_str(&status.expect("a status")).expect("JSON");
        let bytes = fs::read(path).expect("the snapshot is there");
        let compressed = zstd::encode_all(&bytes[..], 19).expect("cannot compress");
        fs::write(out.join(format!("{name}.db.zst")), compressed).expect("cannot write the file");
        format!(
            "{name}\t{}\t{}\t{}\t{}\t{}\n",
            status["revision"],
            status["totalKey"],
            status["hash"],
            served["header"]["revision"],
            digest(served),
        )
    }
}

fn digest(served: &Value) -> Digest {
    let mut digest = Digest::default();
    for kv in served["kvs"].as_array().into_iter().flatten() {
        let (key, value) = (base64(&kv["key"]), base64(&kv["value"]));
        let number = |name: &str| kv[name].as_i64().unwrap_or(0);
        digest.add(&ServedKey {
            key: &key,
            value: &value,
            created: number("create_revision"),
            modified: number("mod_revision"),
            version: number("version"),
            lease: number("lease"),
        });
    }
    digest
}

fn base64(text: &Value) -> Vec<u8> {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text
        .as_str()
        .unwrap_or_default()
        .bytes()
        .filter(|byte| *byte != b'=');
    let mut bytes = Vec::new();
    let (mut bits, mut bit_count) = (0_u32, 0);
    for digit in digits {
        let value = alphabet.iter().position(|byte| *byte == digit).expect("base64");
        bits = bits << 6 | u32::try_from(value).expect("six bits");
        bit_count += 6;
        if bit_count >= 8 {
            bit_count -= 8;
            bytes.push(u8::try_from(bits >> bit_count & 0xFF).expect("eight bits"));
        }
    }
    bytes
}
