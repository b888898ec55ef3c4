//! Whether a backup can be restored, found out by doing it: etcd's own program makes a member of it in scratch, a server
//! starts there for nobody but this process, and what it serves is compared with what was streamed. Then all of it goes.

mod room;

use std::path::{Path, PathBuf};
use std::time::Duration;

use etcd_operator_api::contract::Manifest;
use etcd_operator_etcd::client::Client;
use etcd_operator_etcd::endpoint::{Endpoint, Limits};
use etcd_operator_etcd::error::{Class, Error as EtcdError};
use etcd_operator_etcd::flags::{Config, Figures, Tuning};
use etcd_operator_etcd::id::Revision;
use etcd_operator_etcd::tool::{Restore, Server, ToolError, Tools, run, version as version_of};
use etcd_operator_etcd::version::{Minor, Version};
use etcd_operator_snapshot::content::live_keys::{LiveKeys, find_live_keys};
use etcd_operator_snapshot::content::{Digest, Facts};
use etcd_operator_snapshot::database::Database;
use etcd_operator_snapshot::source::File;

use crate::check::{Copied, scratch_failed};
use crate::failure::Failure;
use crate::served::{Pages, digest};

pub use room::room;

/// It could not be restored, or what was restored does not serve.
pub const FAILED: &str = "RestoreFailed";
/// The image is not one that can restore it.
const IMAGE: &str = "EtcdImage";

/// The only member of the cluster that is restored.
const MEMBER: &str = "rehearsal";
/// How often a server that starts is asked whether it serves.
const PAUSE: Duration = Duration::from_millis(200);
/// How long an answer may take: one page of many keys is the longest.
const ANSWER: Duration = Duration::from_mins(1);
/// What etcd allows a database without being asked.
const QUOTA: u64 = 2 << 30;

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Self {
        let message = error.to_string();
        match error {
            ToolError::NotRun { .. } | ToolError::NoVersion { .. } => Self::lasting(IMAGE, message),
            ToolError::Failed { .. } => Self::passing(FAILED, message),
        }
    }
}

fn failed(message: impl Into<String>) -> Failure {
    Failure::passing(FAILED, message)
}

/// Which version the programs are of; it must be one whose flags are known.
pub async fn version(tools: &Tools) -> Result<Version, Failure> {
    let version = version_of(tools)
        .await
        .map_err(|error| Failure::lasting(IMAGE, error.to_string()))?;
    match Minor::of(&version) {
        Some(_) => Ok(version),
        None => Err(Failure::lasting(
            IMAGE,
            format!("how etcd {version} restores is not known: 3.2 to 3.7 are"),
        )),
    }
}

/// A directory that is gone when it is no longer needed.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new(path: PathBuf) -> Result<Self, Failure> {
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(scratch_failed(&path, &error));
            }
            _ => {}
        }
        std::fs::create_dir(&path).map_err(|error| scratch_failed(&path, &error))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(folder = %self.0.display(), %error, "what was restored for a check stays");
        }
    }
}

/// Restores a copy of a stored backup into scratch, starts it, and compares what it serves.
pub async fn rehearse(
    copied: Copied,
    manifest: &Manifest,
    tools: &Tools,
    scratch: &Path,
) -> Result<(), Failure> {
    let version = version(tools).await?;
    let facts = copied.audit.look.facts.clone();
    fits(&version, &facts)?;
    let name = format!("restore-{}-{}", std::process::id(), manifest.snapshot_sha256);
    // Declared first, so that it goes last: after the server that writes into it.
    let folder = Folder::new(scratch.join(name))?;
    let expected = keys_of(copied.path(), None, copied.audit.records).await?;
    let data = folder.0.join("data");
    let urls = Urls::free()?;
    let restore = Restore {
        snapshot: copied.path().to_owned(),
        data_dir: data.clone(),
        name: MEMBER.to_owned(),
        members: vec![(MEMBER.to_owned(), urls.peer.parse().map_err(unusable)?)],
        token: manifest.snapshot_sha256.clone(),
        bump: None,
    };
    let told = restore
        .invocation(tools, tools.that_restores())
        .map_err(|error| failed(error.to_string()))?;
    tracing::info!(%version, program = %told.program.display(), "restoring the backup to check it");
    run(&told).await?;
    let (records, at) = (copied.audit.records, manifest.revision);
    // It has been read for the last time, and its room may be needed.
    drop(copied);
    let file = data.join("member").join("snap").join("db");
    if !file.exists() {
        let program = told.program.display();
        return Err(failed(format!(
            "{program} ended well and left no database at {}",
            file.display()
        )));
    }
    // Nobody can be asked for the password of a snapshot: then it is the file that is compared.
    let is_shut = facts.auth.enabled || facts.alarms.iter().any(|alarm| alarm.alarm == "CORRUPT");
    if is_shut {
        let found = keys_of(&file, Some(at), records).await?;
        same(&expected, found.digest, "the restored database")?;
    }
    let config = config(&data, &urls, manifest.snapshot_size)?;
    let mut server = Server::start(tools, &version, &config)?;
    let served = async {
        let client = serving(&urls.client, at, is_shut).await?;
        if is_shut {
            return Ok(());
        }
        let found = digest(&client, Revision(at), Pages::of_largest(expected.largest))
            .await
            .map_err(|error| failed(format!("the restored etcd cannot be read: {error}")))?;
        same(&expected, found, "the restored etcd")
    };
    let judged = tokio::select! {
        judged = served => judged,
        ended = server.ended() => Err(match ended {
            Ok(ended) => failed(format!("the restored {ended}")),
            Err(error) => failed(error.to_string()),
        }),
    };
    server
        .stop()
        .await
        .map_err(|error| failed(format!("the restored etcd could not be stopped: {error}")))?;
    judged?;
    tracing::info!(
        keys = expected.keys,
        digest = %expected.digest,
        by = if is_shut { "its file, as users would be asked for" } else { "what it serves" },
        "the backup was restored and started, and holds what was streamed"
    );
    Ok(())
}

/// Whether a version can start with such a database: an older one than wrote it ends at once.
fn fits(version: &Version, facts: &Facts) -> Result<(), Failure> {
    let versions = &facts.versions;
    let written = [&versions.storage, &versions.cluster];
    let newest = written
        .into_iter()
        .flatten()
        .filter_map(|text| {
            let mut parts = text.split('.').map(str::parse::<u32>);
            Some((parts.next()?.ok()?, parts.next()?.ok()?))
        })
        .max();
    match newest {
        Some(newest) if newest > (version.major, version.minor) => {
            let (major, minor) = newest;
            Err(Failure::lasting(
                IMAGE,
                format!(
                    "the image holds etcd {version}, and the snapshot is of etcd {major}.{minor}, which an older one cannot open"
                ),
            ))
        }
        _ => Ok(()),
    }
}

/// Where the server listens: on the loopback, at ports that nobody else has.
struct Urls {
    client: String,
    peer: String,
}

impl Urls {
    fn free() -> Result<Self, Failure> {
        let port = || {
            let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
            listener.local_addr().map(|address| (address.port(), listener))
        };
        let none = |error: std::io::Error| failed(format!("no port of 127.0.0.1 is free: {error}"));
        // Both are held until both are known, so that they differ.
        let (client, peer) = (port().map_err(none)?, port().map_err(none)?);
        Ok(Self {
            client: format!("http://127.0.0.1:{}", client.0),
            peer: format!("http://127.0.0.1:{}", peer.0),
        })
    }
}

fn unusable(error: impl std::fmt::Display) -> Failure {
    failed(error.to_string())
}

fn config(data: &Path, urls: &Urls, size: u64) -> Result<Config, Failure> {
    let client = vec![urls.client.parse().map_err(unusable)?];
    let peer = vec![urls.peer.parse().map_err(unusable)?];
    Ok(Config {
        name: MEMBER.to_owned(),
        data_dir: data.display().to_string(),
        listen_peer: peer.clone(),
        listen_client: client.clone(),
        listen_metrics: Vec::new(),
        advertise_peer: peer,
        advertise_client: client,
        first: None,
        client_tls: None,
        peer_tls: None,
        tuning: Tuning {
            // A database that was at its limit must not raise an alarm here.
            quota: Some(size.saturating_mul(2).max(QUOTA)),
            ..Tuning::default()
        },
        figures: Figures::Basic,
        check_at_start: false,
        check_every: None,
        check_compactions_every: None,
        stop_serving_on_defrag: false,
        max_learners: None,
        extra: Vec::new(),
    })
}

/// Waits until the server answers reads, or refuses them as such a database must. The run's deadline bounds it.
async fn serving(url: &str, at: i64, is_shut: bool) -> Result<Client, Failure> {
    let limits = Limits {
        call: ANSWER,
        ..Limits::default()
    };
    let endpoint = Endpoint {
        limits,
        ..Endpoint::plain(url.parse().map_err(unusable)?)
    };
    loop {
        if let Ok(client) = Client::connect(&endpoint).await {
            match client.position().await {
                Ok(position) if position.revision.0 >= at => return Ok(client),
                Ok(position) => {
                    return Err(failed(format!(
                        "the restored etcd is at revision {}, and the snapshot is of {at}",
                        position.revision
                    )));
                }
                Err(error) if is_shut && is_refusal(&error) => return Ok(client),
                Err(error) => tracing::debug!(%error, "the restored etcd does not serve yet"),
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether a server that serves says no.
fn is_refusal(error: &EtcdError) -> bool {
    error.rejection().is_some() && matches!(error.class(), Class::Unauthorised | Class::Corrupt)
}

/// The keys in a file, as they were at a revision.
async fn keys_of(file: &Path, at: Option<i64>, records: u64) -> Result<LiveKeys, Failure> {
    let path = file.to_owned();
    let reading = tokio::task::spawn_blocking(move || {
        let unreadable = |error: std::io::Error| scratch_failed(&path, &error);
        let file = std::fs::File::open(&path).map_err(unreadable)?;
        let mut database = Database::open(File::new(file).map_err(unreadable)?)?;
        Ok::<LiveKeys, Failure>(find_live_keys(&mut database, at, records)?)
    });
    reading
        .await
        .map_err(|stopped| Failure::passing("Stopped", stopped.to_string()))?
}

fn same(expected: &LiveKeys, found: Digest, what: &str) -> Result<(), Failure> {
    if found == expected.digest {
        return Ok(());
    }
    Err(failed(format!(
        "{what} does not hold what was streamed: {} keys with digest {found}, and not {} with {}",
        found.keys(),
        expected.keys,
        expected.digest
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_older_than_the_database_is_refused_with_both_versions() {
        let mut facts = Facts::default();
        let image = "3.5.9".parse().expect("a version");
        assert_eq!(fits(&image, &facts), Ok(()));
        facts.versions.cluster = Some("3.5.0".to_owned());
        assert_eq!(fits(&image, &facts), Ok(()));
        facts.versions.storage = Some("3.6.0".to_owned());
        let failure = fits(&image, &facts).expect_err("an older one");
        assert_eq!((failure.reason.as_ref(), failure.is_retriable), (IMAGE, false));
        for part in ["3.5.9", "3.6"] {
            assert!(failure.message.contains(part), "{failure}");
        }
    }
}
