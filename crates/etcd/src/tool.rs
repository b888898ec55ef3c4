//! etcd's own programs: which of them restores a snapshot, how it is told what to do, and running it. The files of a
//! member differ from version to version, so nobody but the program of that very version writes them.

mod child;
mod run;

use std::fmt;
use std::path::PathBuf;

use crate::url::PeerUrl;

pub use child::{Server, ServerEnded};
pub use run::{ToolError, run, server_version, version};

/// Where the programs are in the images that upstream makes.
pub const IN_IMAGES: &str = "/usr/local/bin";

/// A program of etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The server.
    Etcd,
    /// The client; it restores, too, where there is no other that does: up to 3.4.
    Etcdctl,
    /// What works on files, since 3.5.
    Etcdutl,
}

impl Program {
    /// The name of its file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Etcdctl => "etcdctl",
            Self::Etcdutl => "etcdutl",
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The directory with etcd's programs of one version. Whether they are there is not checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tools(PathBuf);

impl Tools {
    /// Those in this directory.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self(directory.into())
    }

    /// Those of etcd's own image, for a process that runs in such an image.
    pub fn of_image() -> Self {
        Self::at(IN_IMAGES)
    }

    /// Where a program is.
    pub fn path(&self, program: Program) -> PathBuf {
        self.0.join(program.as_str())
    }

    /// The program that restores snapshots: `etcdutl` if it is in the directory, else `etcdctl`. Where both exist,
    /// `etcdctl` may no longer restore.
    pub fn that_restores(&self) -> Program {
        if self.path(Program::Etcdutl).exists() {
            Program::Etcdutl
        } else {
            Program::Etcdctl
        }
    }
}

/// A program with its arguments and its environment variables; it gets no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// Where it is.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its variables.
    pub variables: Vec<(&'static str, &'static str)>,
}

impl Invocation {
    /// A program without variables.
    pub fn new(program: PathBuf, arguments: Vec<String>) -> Self {
        Self {
            program,
            arguments,
            variables: Vec::new(),
        }
    }
}

/// How one member of a new cluster is restored from a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restore {
    /// The snapshot, with its hash behind it.
    pub snapshot: PathBuf,
    /// Where the member's data goes: a directory that is not there yet.
    pub data_dir: PathBuf,
    /// The member's name, one of those in `members`.
    pub name: String,
    /// All members of the new cluster, by name; the same for each of them.
    pub members: Vec<(String, PeerUrl)>,
    /// What keeps it apart from every other cluster; the same for each member.
    pub token: String,
    /// By how much revisions grow, so that none is given twice for different data.
    pub bump: Option<u64>,
}

/// A member cannot be restored, because it is not among the members of the new cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is none of the members of the new cluster")]
pub struct Stranger(String);

impl Restore {
    /// The `snapshot restore` command. An error if `name` is not among `members`. Whether the program's version has
    /// `--bump-revision` is not checked.
    pub fn invocation(&self, tools: &Tools, program: Program) -> Result<Invocation, Stranger> {
        let own = self.members.iter().find(|(name, _)| *name == self.name);
        let (_, url) = own.ok_or_else(|| Stranger(self.name.clone()))?;
        let members: Vec<String> = self
            .members
            .iter()
            .map(|(name, url)| format!("{name}={url}"))
            .collect();
        let mut arguments = vec![
            "snapshot".to_owned(),
            "restore".to_owned(),
            self.snapshot.display().to_string(),
            format!("--data-dir={}", self.data_dir.display()),
            format!("--name={}", self.name),
            format!("--initial-cluster={}", members.join(",")),
            format!("--initial-cluster-token={}", self.token),
            format!("--initial-advertise-peer-urls={url}"),
        ];
        if let Some(bump) = self.bump {
            // What watches would miss is told to be gone.
            arguments.push(format!("--bump-revision={bump}"));
            arguments.push("--mark-compacted".to_owned());
        }
        let variables = match program {
            // Before 3.4 it speaks the protocol of etcd 2 unless told otherwise.
            Program::Etcdctl => vec![("ETCDCTL_API", "3")],
            Program::Etcd | Program::Etcdutl => Vec::new(),
        };
        Ok(Invocation {
            variables,
            ..Invocation::new(tools.path(program), arguments)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn restore() -> Restore {
        let url = |text: &str| text.parse().expect("a URL");
        Restore {
            snapshot: "/scratch/snapshot.db".into(),
            data_dir: "/scratch/data".into(),
            name: "c-1".to_owned(),
            members: vec![
                ("c-0".to_owned(), url("http://c-0:2380")),
                ("c-1".to_owned(), url("http://c-1:2380")),
            ],
            token: "restore-7".to_owned(),
            bump: None,
        }
    }

    #[test]
    fn the_client_restores_only_where_nothing_else_does_and_is_told_its_protocol() {
        let folder = std::env::temp_dir().join(format!("etcd-tools-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a directory");
        let tools = Tools::at(&folder);
        let told = |tools: &Tools| {
            let program = tools.that_restores();
            let told = restore().invocation(tools, program).expect("a member");
            assert_eq!(told.program, folder.join(program.as_str()));
            told.variables
        };
        assert_eq!(told(&tools), [("ETCDCTL_API", "3")]);
        std::fs::write(folder.join("etcdutl"), "").expect("written");
        assert_eq!(told(&tools), []);
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn every_member_is_told_of_all_and_of_its_own_address() {
        let tools = Tools::of_image();
        let mut expected = vec![
            "snapshot",
            "restore",
            "/scratch/snapshot.db",
            "--data-dir=/scratch/data",
            "--name=c-1",
            "--initial-cluster=c-0=http://c-0:2380,c-1=http://c-1:2380",
            "--initial-cluster-token=restore-7",
            "--initial-advertise-peer-urls=http://c-1:2380",
        ];
        let told = restore().invocation(&tools, Program::Etcdutl).expect("a member");
        assert_eq!(told.arguments, expected);
        assert_eq!(told.program, Path::new("/usr/local/bin/etcdutl"));
        let raised = Restore {
            bump: Some(1_000_000_000),
            ..restore()
        };
        let told = raised.invocation(&tools, Program::Etcdutl).expect("a member");
        expected.extend(["--bump-revision=1000000000", "--mark-compacted"]);
        assert_eq!(told.arguments, expected);
        let stranger = Restore {
            name: "c-7".to_owned(),
            ..restore()
        };
        let told = stranger.invocation(&tools, Program::Etcdutl);
        assert_eq!(told, Err(Stranger("c-7".to_owned())));
    }
}
