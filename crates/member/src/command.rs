//! The command that this process becomes: what it must say, must not say, and what is added for a first start. Nothing
//! is run here.

use std::path::{Path, PathBuf};

use etcd_operator_etcd::flags::{First, FirstState};

/// Flags that would start etcd elsewhere than on the disk that was judged, or as something else than was permitted.
const REFUSED: [&str; 10] = [
    "wal-dir",
    "config-file",
    "force-new-cluster",
    "initial-cluster",
    "initial-cluster-state",
    "initial-cluster-token",
    "discovery",
    "discovery-srv",
    "discovery-endpoints",
    "discovery-token",
];

/// The comparison of data before etcd serves, where it is a flag, and as one of the gates.
const CHECK: &str = "experimental-initial-corrupt-check";
const CHECK_GATE: &str = "InitialCorruptCheck";
const GATES: &str = "feature-gates";

/// What etcd starts on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// Its own data.
    Again,
    /// Nothing, or what is not its own any more: it is told who the members are.
    First(First),
    /// Data that were restored. All members start on them at once, and none answers another's comparison before its own is
    /// over: each would wait for the others in vain, seven seconds for each of them. Their data were made of one snapshot,
    /// whose hash was right; they are compared with the others at the next start, and every day.
    Restored,
}

/// Why this process must not become a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// There is none.
    #[error("no command: write it after --, for example -- /usr/local/bin/etcd --data-dir=/var/etcd/data")]
    Absent,
    /// The program cannot be run.
    #[error("{0} is no program that can be run")]
    NoProgram(PathBuf),
    /// Its data lies elsewhere.
    #[error("the command must have --data-dir={wanted}, it has {found}")]
    DataElsewhere {
        /// Where the data is guarded.
        wanted: PathBuf,
        /// What the command says.
        found: String,
    },
    /// It has a flag that only a permit gives.
    #[error("the command must not have --{0}: a permit says it, or nobody does")]
    Refused(String),
}

/// The command of etcd that this process becomes, without what a first start adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdCommand {
    program: PathBuf,
    arguments: Vec<String>,
}

impl EtcdCommand {
    /// Parses the command of etcd. An error if `--data-dir` is not the directory that was judged, or if it has a flag
    /// that only a permit may add, such as `--initial-cluster`.
    pub fn read(words: &[String], data: &Path) -> Result<Self, CommandError> {
        let (program, arguments) = words.split_first().ok_or(CommandError::Absent)?;
        let command = Self {
            program: program.into(),
            arguments: arguments.to_vec(),
        };
        if let Some(name) = REFUSED.iter().find(|name| command.flag(name).is_some()) {
            return Err(CommandError::Refused((*name).to_owned()));
        }
        let found = command.flag("data-dir");
        if found.as_deref().map(Path::new) == Some(data) {
            return Ok(command);
        }
        Err(CommandError::DataElsewhere {
            wanted: data.to_owned(),
            found: found.unwrap_or_else(|| "none".to_owned()),
        })
    }

    /// The program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The first value of a flag, with one or two dashes. A flag without `=` has the next word as its value. `None` if
    /// it is not given.
    pub fn flag(&self, name: &str) -> Option<String> {
        let mut words = self.arguments.iter();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
                continue;
            };
            match flag.split_once('=') {
                Some((found, value)) if found == name => return Some(value.to_owned()),
                None if flag == name => return Some(words.next().cloned().unwrap_or_default()),
                _ => {}
            }
        }
        None
    }

    /// The arguments for this start. A first start gets the initial cluster; one on restored data does not compare its
    /// data with the other members'.
    pub fn arguments(&self, start: &Start) -> Vec<String> {
        let mut arguments = self.arguments.clone();
        if *start == Start::Restored {
            return arguments.iter().map(|word| unchecked(word)).collect();
        }
        if let Start::First(first) = start {
            let members: Vec<String> = first
                .members
                .iter()
                .map(|(name, url)| format!("{name}={url}"))
                .collect();
            let state = match first.state {
                FirstState::New => "new",
                FirstState::Existing => "existing",
            };
            arguments.push(format!("--initial-cluster={}", members.join(",")));
            arguments.push(format!("--initial-cluster-state={state}"));
            if !first.token.is_empty() {
                arguments.push(format!("--initial-cluster-token={}", first.token));
            }
        }
        arguments
    }
}

/// An argument with the comparison of data at the start turned off, if it turns that on. Any other one stays.
fn unchecked(word: &str) -> String {
    let flag = word.strip_prefix("--").or_else(|| word.strip_prefix('-'));
    match flag.map(|flag| flag.split_once('=').unwrap_or((flag, "true"))) {
        Some((CHECK, _)) => format!("--{CHECK}=false"),
        Some((GATES, gates)) => {
            let gates = gates.split(',').map(|gate| match gate.split_once('=') {
                Some((CHECK_GATE, _)) => format!("{CHECK_GATE}=false"),
                _ => gate.to_owned(),
            });
            format!("--{GATES}={}", gates.collect::<Vec<_>>().join(","))
        }
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<EtcdCommand, CommandError> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        EtcdCommand::read(&words, Path::new("/var/etcd/data"))
    }

    #[test]
    fn only_etcd_on_the_guarded_directory_is_run() {
        for data in [
            &["--data-dir=/var/etcd/data"][..],
            &["-data-dir=/var/etcd/data/"],
            &["--data-dir", "/var/etcd/data"],
        ] {
            assert!(read(&[&["etcd", "--name=a"], data].concat()).is_ok(), "{data:?}");
        }
        assert_eq!(read(&[]), Err(CommandError::Absent));
        for elsewhere in [
            &["etcd"][..],
            &["etcd", "--data-dir=/var/etcd"],
            &["etcd", "--data-dir"],
        ] {
            let error = read(elsewhere).expect_err("elsewhere");
            assert!(error.to_string().contains("--data-dir=/var/etcd/data"), "{error}");
        }
    }

    #[test]
    fn what_only_a_permit_may_say_is_refused_in_every_spelling() {
        for name in REFUSED {
            for flag in [format!("--{name}"), format!("-{name}=x"), format!("--{name}=")] {
                let found = read(&["etcd", "--data-dir=/var/etcd/data", &flag]);
                assert_eq!(found, Err(CommandError::Refused(name.to_owned())), "{flag}");
            }
        }
    }

    #[test]
    fn a_first_start_is_told_its_cluster_and_no_other_start_is() {
        let command = read(&["etcd", "--data-dir=/var/etcd/data"]).expect("a command");
        assert_eq!(command.arguments(&Start::Again), ["--data-dir=/var/etcd/data"]);
        let url = |host: &str| format!("http://{host}:2380").parse().expect("a URL");
        let first = First {
            state: FirstState::Existing,
            token: "t".into(),
            members: vec![("a".into(), url("a.ns.svc")), ("b".into(), url("b.ns.svc"))],
        };
        assert_eq!(
            command.arguments(&Start::First(first))[1..],
            [
                "--initial-cluster=a=http://a.ns.svc:2380,b=http://b.ns.svc:2380",
                "--initial-cluster-state=existing",
                "--initial-cluster-token=t"
            ]
        );
    }

    #[test]
    fn on_restored_data_no_member_waits_for_what_another_cannot_answer_yet() {
        for (said, told) in [
            (
                "--experimental-initial-corrupt-check",
                "--experimental-initial-corrupt-check=false",
            ),
            (
                "--experimental-initial-corrupt-check=true",
                "--experimental-initial-corrupt-check=false",
            ),
            (
                "--feature-gates=CompactHashCheck=true,InitialCorruptCheck=true",
                "--feature-gates=CompactHashCheck=true,InitialCorruptCheck=false",
            ),
            (
                "--feature-gates=LeaseCheckpoint=true",
                "--feature-gates=LeaseCheckpoint=true",
            ),
            (
                "--quota-backend-bytes=8589934592",
                "--quota-backend-bytes=8589934592",
            ),
        ] {
            let command = read(&["etcd", "--data-dir=/var/etcd/data", said]).expect("a command");
            let wanted = ["--data-dir=/var/etcd/data", told];
            assert_eq!(command.arguments(&Start::Restored), wanted);
            assert_eq!(command.arguments(&Start::Again)[1], said, "only once");
        }
    }
}
