//! Building a set of components into the cache. An entry appears whole, by a rename, or not at all; two runs never
//! build the same entry at the same time.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::{ComponentSet, go};

/// A cold build of the API server takes minutes; this is for a machine that has stalled.
const BUILD_LIMIT: Duration = Duration::from_hours(1);
/// How often a build says how far it is.
const REPORT: Duration = Duration::from_secs(10);
/// Lines of Go's output that are repeated when it fails.
const TAIL: usize = 30;

/// The directory with the binaries of `set`, built now unless it was before. `later` is only named in messages.
pub(super) async fn ensure(set: &ComponentSet, later: &[ComponentSet]) -> Result<PathBuf> {
    let source = set.source();
    let version = set.version()?;
    let flags = flags(set, &version);
    let go_version = go::version_for(&source.join("go.mod")).await?;
    let key = key(&[
        &fs::read(source.join("go.mod"))?,
        &fs::read(source.join("go.sum"))?,
        go_version.as_bytes(),
        flags.join("\n").as_bytes(),
    ]);
    let cache = cache_directory()?;
    let entry = cache.join(format!("{}-{key}", set.name));
    if entry.is_dir() {
        return Ok(entry);
    }
    fs::create_dir_all(&cache).with_context(|| format!("cannot make the cache {}", cache.display()))?;

    let _lock = lock(&cache.join(format!("{}-{key}.lock", set.name)), set.name).await?;
    if entry.is_dir() {
        return Ok(entry);
    }
    let part = cache.join(format!("{}-{key}.part", set.name));
    // Nobody else builds this entry while the lock is held: what is here was left by a run that died.
    if part.exists() {
        fs::remove_dir_all(&part).with_context(|| format!("cannot remove {}", part.display()))?;
    }
    fs::create_dir(&part).with_context(|| format!("cannot make {}", part.display()))?;
    build(set, &version, &source, &flags, &part, later).await?;
    fs::rename(&part, &entry)
        .with_context(|| format!("cannot move the finished build to {}", entry.display()))?;
    Ok(entry)
}

/// Everything given to `go build` except where to put the result.
fn flags(set: &ComponentSet, version: &str) -> Vec<String> {
    let mut linker = vec![String::from("-s -w")];
    let mut parts = version.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    for package in set.stamped {
        for (variable, value) in [
            ("gitVersion", version),
            ("gitMajor", major),
            ("gitMinor", minor),
            ("gitTreeState", "clean"),
        ] {
            linker.push(format!("-X {package}.{variable}={value}"));
        }
    }
    let mut flags = vec![
        "-trimpath".into(),
        "-mod=readonly".into(),
        "-ldflags".into(),
        linker.join(" "),
    ];
    flags.extend(set.binaries.iter().map(|binary| binary.package.to_owned()));
    flags
}

async fn build(
    set: &ComponentSet,
    version: &str,
    source: &Path,
    flags: &[String],
    into: &Path,
    later: &[ComponentSet],
) -> Result<()> {
    let what = format!("{} {version} ({})", set.name, set.binary_names());
    let then = match later {
        [] => String::new(),
        _ => format!(
            "; after it {}",
            later.iter().map(|set| set.name).collect::<Vec<_>>().join(", ")
        ),
    };
    say(&format!("building {what}{then}"));
    let start = Instant::now();
    let mut child = go::command()
        .args(["build", "-v", "-o"])
        .arg(into)
        .args(flags)
        .current_dir(source)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start `go build`")?;
    let mut lines = BufReader::new(
        child
            .stderr
            .take()
            .context("the build's output was not captured")?,
    )
    .lines();
    let mut seen: Vec<String> = Vec::new();
    let mut report = tokio::time::interval(REPORT);
    report.tick().await;
    loop {
        tokio::select! {
            line = lines.next_line() => match line? {
                Some(line) => seen.push(line),
                None => break,
            },
            _ = report.tick() => {
                let elapsed = start.elapsed();
                if elapsed > BUILD_LIMIT {
                    bail!("building {what} took longer than {} min", BUILD_LIMIT.as_secs() / 60);
                }
                say(&format!(
                    "building {}: {} s, {} steps done, now at {}{then}",
                    set.name,
                    elapsed.as_secs(),
                    seen.len(),
                    seen.last().map_or("the start", String::as_str),
                ));
            }
        }
    }
    let status = child.wait().await.context("cannot wait for `go build`")?;
    if !status.success() {
        let tail = seen[seen.len().saturating_sub(TAIL)..].join("\n");
        bail!(
            "`go build` of {what} in {} failed ({status}):\n{tail}",
            source.display()
        );
    }
    for binary in set.binaries {
        let built = into.join(built_name(binary.package));
        let wanted = into.join(binary.name);
        fs::rename(&built, &wanted)
            .with_context(|| format!("`go build` left no {} for {}", built.display(), binary.package))?;
    }
    say(&format!("built {what} in {} s", start.elapsed().as_secs()));
    Ok(())
}

/// Go names a binary after the last element of its package that is not a major version.
fn built_name(package: &str) -> &str {
    let mut elements = package.rsplit('/');
    let last = elements.next().unwrap_or(package);
    let is_major = last
        .strip_prefix('v')
        .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    if is_major {
        elements.next().unwrap_or(last)
    } else {
        last
    }
}

async fn lock(path: &Path, name: &str) -> Result<File> {
    let file = File::create(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut told = false;
    crate::deadline::until(
        &format!("the build of {name} by another run"),
        BUILD_LIMIT,
        || {
            let outcome = match file.try_lock() {
                Ok(()) => Ok(Some(())),
                Err(TryLockError::WouldBlock) => {
                    if !std::mem::replace(&mut told, true) {
                        say(&format!("another run is building {name}: waiting for it"));
                    }
                    Ok(None)
                }
                Err(TryLockError::Error(error)) => Err(error.into()),
            };
            std::future::ready(outcome)
        },
    )
    .await?;
    Ok(file)
}

/// `${XDG_CACHE_HOME:-~/.cache}/etcd-operator`.
fn cache_directory() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache")))
        .context("neither XDG_CACHE_HOME nor a home directory is known: where should builds be cached?")?;
    Ok(base.join("etcd-operator"))
}

/// FNV-1a over all parts, each with its length so that no two lists run together. It tells builds apart; it need
/// not withstand anybody.
fn key(parts: &[&[u8]]) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        for byte in part.len().to_le_bytes().iter().chain(*part) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{hash:016x}")
}

fn say(line: &str) {
    eprintln!("components: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::components::SETS;

    #[test]
    fn any_change_of_an_input_changes_the_key() {
        let base = key(&[b"go.mod", b"go.sum", b"go1.26.8", b"-trimpath"]);
        assert_eq!(base, key(&[b"go.mod", b"go.sum", b"go1.26.8", b"-trimpath"]));
        assert_ne!(base, key(&[b"go.mod", b"go.sum", b"go1.26.9", b"-trimpath"]));
        assert_ne!(base, key(&[b"go.modg", b"o.sum", b"go1.26.8", b"-trimpath"]));
    }

    #[test]
    fn kubernetes_is_stamped_with_the_version_its_module_pins() {
        let set = SETS.iter().find(|set| set.name == "kubernetes").unwrap();
        let flags = flags(set, "v1.36.3");
        for expected in ["gitVersion=v1.36.3", "gitMajor=1", "gitMinor=36"] {
            assert!(
                flags[3].contains(&format!("-X k8s.io/component-base/version.{expected}")),
                "{expected}"
            );
        }
    }

    #[test]
    fn a_major_version_is_not_the_name_of_a_binary() {
        assert_eq!(built_name("go.etcd.io/etcd/server/v3"), "server");
        assert_eq!(built_name("k8s.io/kubernetes/cmd/kubectl"), "kubectl");
    }

    #[tokio::test]
    async fn a_second_run_waits_for_the_lock_of_the_first() {
        let bed = crate::bed_dir::BedDir::create().unwrap();
        let path = bed.path().join("x.lock");
        let first = lock(&path, "x").await.unwrap();
        let second = tokio::spawn({
            let path = path.clone();
            async move { lock(&path, "x").await }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(first);
        second.await.unwrap().unwrap();
    }
}
