//! Making a member's data beside the old ones, of a snapshot that was downloaded: by etcd's own program, checked, brought
//! to the disk, and marked as complete last of all. Nothing that was there before is touched.

use std::convert::Infallible;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use etcd_operator_api::contract::{PrepareFailure, Prepared, VERSION};
use etcd_operator_etcd::tool::{Restore, ToolError, Tools, run};
use rustix::fs::{Advice, fadvise};

use crate::disk::{self, Depth};
use crate::keeper::{Keeper, NotKept};
use crate::permit::Preparation;
use crate::room::{self, LOG};
use crate::view::{Data, LogHead};
use crate::volume::Volume;

/// How often it is looked whether etcd's program has copied what was downloaded.
const LOOK: Duration = Duration::from_millis(250);
/// What etcd puts behind a snapshot, and leaves out of the copy.
const HASH: u64 = 32;

/// Restores the snapshot into a directory beside the data, with etcd's own program from the directory of `program`, and
/// marks it as complete. Earlier restored directories are removed first, and this one if it fails. The failure says
/// whether it may be tried again.
pub async fn make(volume: &Volume, preparation: Preparation, program: &Path) -> Result<(), PrepareFailure> {
    blocking(volume, |volume| {
        Keeper::new(volume, &mut |_| Ok(()))
            .clear_restored()
            .map_err(|error| kept(&error))
    })
    .await?;
    has_room(volume, preparation.snapshot_size)?;
    let directory = volume.restored(&preparation.directory);
    let restore = Restore {
        snapshot: volume.snapshot(),
        data_dir: directory.clone(),
        name: preparation.member.clone(),
        members: preparation.first.members.clone(),
        token: preparation.first.token.clone(),
        bump: preparation.bump,
    };
    let tools = Tools::at(program.parent().unwrap_or(Path::new("/")));
    let told = restore
        .invocation(&tools, tools.that_restores())
        .map_err(|error| failure("ToolFailed", error.to_string(), false))?;
    tracing::info!(restore = preparation.restore_uid, program = %told.program.display(), "restoring beside the data");
    let ended = tokio::select! {
        biased;
        ended = run(&told) => ended,
        never = let_go(volume.snapshot(), directory.join("member/snap/db")) => match never {},
    };
    let made = match ended {
        Ok(_) => blocking(volume, move |volume| complete(volume, &preparation)).await,
        Err(error) => Err(tool(&error)),
    };
    if made.is_err() {
        // Half a directory only takes room; what cannot be removed now is before the next one is made.
        let _ = blocking(volume, |volume| {
            Keeper::new(volume, &mut |_| Ok(()))
                .clear_restored()
                .map_err(|error| kept(&error))
        })
        .await;
    }
    made
}

/// Takes the snapshot out of the page cache once the program has its copy, and never returns. The copy is read three
/// times, twice by the program and then by etcd. Where memory does not hold both, the pages of the snapshot would
/// displace it, and each of these reads would wait for the disk.
async fn let_go(snapshot: PathBuf, copy: PathBuf) -> Infallible {
    loop {
        tokio::time::sleep(LOOK).await;
        let (snapshot, copy) = (snapshot.clone(), copy.clone());
        let gone = tokio::task::spawn_blocking(move || without_pages(&snapshot, &copy)).await;
        if matches!(gone, Ok(Ok(true))) {
            return std::future::pending().await;
        }
    }
}

/// Takes the snapshot out of the page cache if the copy is as long; `false` if it is not yet. Its bytes on the disk
/// stay.
fn without_pages(snapshot: &Path, copy: &Path) -> std::io::Result<bool> {
    let snapshot = File::open(snapshot)?;
    if std::fs::metadata(copy)?.len() + HASH < snapshot.metadata()?.len() {
        return Ok(false);
    }
    fadvise(&snapshot, 0, None, Advice::DontNeed)?;
    Ok(true)
}

/// Checks the restored directory as a start would, and marks it as complete.
fn complete(volume: &Volume, preparation: &Preparation) -> Result<(), PrepareFailure> {
    let directory = volume.restored(&preparation.directory);
    let LogHead { cluster, member } = match disk::data(&directory, Depth::Start) {
        Ok(Data::Logged(store)) => store.whole().map_err(|why| {
            failure(
                "ToolFailed",
                format!("what was restored is not whole: {why}"),
                false,
            )
        })?,
        Ok(Data::None | Data::Unlogged) => {
            let message = format!(
                "etcd's program ended well and left no member at {}",
                directory.display()
            );
            return Err(failure("ToolFailed", message, false));
        }
        Err(trouble) => return Err(failure("Io", trouble, true)),
    };
    let prepared = Prepared {
        version: VERSION,
        restore_uid: preparation.restore_uid.clone(),
        object_sha256: preparation.object_sha256.clone(),
        incarnation: preparation.incarnation,
        directory: preparation.directory.clone(),
        cluster_id: Some(cluster.to_string()),
        member_id: Some(member.to_string()),
    };
    Keeper::new(volume, &mut |_| Ok(()))
        .mark_prepared(&prepared)
        .map_err(|error| kept(&error))
}

/// Fails if there is no room for another database and its log.
fn has_room(volume: &Volume, database: u64) -> Result<(), PrepareFailure> {
    let free = room::free(volume.root()).map_err(|why| failure("Io", why, true))?;
    let parts = format!("{database} for the database and {LOG} for etcd's log");
    room::judge(volume.root(), free, database.saturating_add(LOG), &parts)
        .map_err(|why| failure("NoRoom", why, true))
}

/// The failure of etcd's program. It may be tried again only if there was no room.
fn tool(error: &ToolError) -> PrepareFailure {
    let message = error.to_string();
    match error {
        ToolError::NotRun { .. } | ToolError::NoVersion { .. } => failure("NoTool", message, false),
        ToolError::Failed { .. } if message.contains("no space left") => failure("NoRoom", message, true),
        ToolError::Failed { .. } => failure("ToolFailed", message, false),
    }
}

/// The failure to change the disk, which may always be tried again.
fn kept(error: &NotKept) -> PrepareFailure {
    let reason = if error.is_for_lack_of_room() {
        "NoRoom"
    } else {
        "Io"
    };
    failure(reason, error.to_string(), true)
}

fn failure(reason: &str, message: String, retriable: bool) -> PrepareFailure {
    PrepareFailure {
        reason: reason.to_owned(),
        message,
        retriable,
    }
}

/// Does blocking work on another thread: gibibytes take their time to be synced or removed, and the report must be
/// served meanwhile.
async fn blocking(
    volume: &Volume,
    work: impl FnOnce(&Volume) -> Result<(), PrepareFailure> + Send + 'static,
) -> Result<(), PrepareFailure> {
    let volume = volume.clone();
    let done = tokio::task::spawn_blocking(move || work(&volume)).await;
    done.unwrap_or_else(|stopped| Err(failure("Io", stopped.to_string(), true)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::Scratch;

    #[test]
    fn what_was_downloaded_leaves_the_cache_only_once_there_is_a_copy_of_all_of_it() {
        let scratch = Scratch::new();
        let bytes = vec![7; 8192 + usize::try_from(HASH).unwrap()];
        scratch.file("snapshot.db", &bytes);
        let snapshot = scratch.path().join("snapshot.db");
        let copy = scratch.path().join("db");
        assert!(without_pages(&snapshot, &copy).is_err(), "there is none yet");
        for (length, is_whole) in [(0, false), (8191, false), (8192, true), (bytes.len(), true)] {
            std::fs::write(&copy, &bytes[..length]).unwrap();
            assert_eq!(without_pages(&snapshot, &copy).unwrap(), is_whole, "{length}");
            assert_eq!(std::fs::read(&snapshot).unwrap(), bytes);
        }
    }
}
