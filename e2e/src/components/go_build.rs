//! Building a set from a Go module. Nothing here knows of the cache.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tokio::process::Command;

use super::follow::{Heard, follow};
use super::progress::{Packages, Progress};
use super::sets::{ComponentSet, GoModule, Linkage, Stamped};
use super::{cache, go};

/// A set that comes from a Go module, with all that decides what is built.
#[derive(Clone, Copy, Debug)]
pub(super) struct GoBuild {
    pub(super) set: &'static ComponentSet,
    pub(super) module: &'static GoModule,
}

impl GoBuild {
    /// Everything that decides what comes out: any change makes another entry in the cache.
    pub(super) async fn inputs(self) -> Result<Vec<Vec<u8>>> {
        let source = self.module.directory();
        let mut inputs = vec![
            go::version_for(&source.join("go.mod")).await?.into_bytes(),
            self.flags()?.join("\n").into_bytes(),
            self.module.without.join("\n").into_bytes(),
        ];
        for file in sources(&source)? {
            inputs.push(fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?);
        }
        Ok(inputs)
    }

    /// Leaves the binaries in the directory `into`, which may hold other things meanwhile.
    pub(super) async fn run(self, into: &Path, progress: &Progress, jobs: usize) -> Result<()> {
        let scratch = into.join("module");
        let source = if self.module.without.is_empty() {
            self.module.directory()
        } else {
            self.vendor(&scratch).await?;
            scratch.clone()
        };
        let packages = self.packages(&source).await?;
        progress.counted(self.set, packages);

        let mut command = self.command();
        command.arg("build").args(["-v", "-p", &jobs.to_string(), "-o"]);
        // The slash makes Go put even a single binary into it.
        command.arg(into.join(""));
        command.args(self.flags()?).current_dir(&source);
        let what = format!(
            "`go build` of {} in {}",
            self.set.binary_names(),
            source.display()
        );
        follow(command, &what, cache::LIMIT, |heard| match heard {
            Heard::Beat => progress.beat(self.set),
            Heard::Out(_) | Heard::Err(_) => progress.compiled(self.set),
        })
        .await?;

        for binary in self.set.binaries {
            let built = into.join(built_name(binary.from));
            let wanted = into.join(binary.name);
            fs::rename(&built, &wanted)
                .with_context(|| format!("`go build` left no {} for {}", built.display(), binary.from))?;
        }
        if scratch.exists() {
            fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
        }
        Ok(())
    }

    /// Counts what there is to compile, and fetches the sources on the way.
    async fn packages(self, source: &Path) -> Result<Packages> {
        let mut command = self.command();
        // Of what its cache has, Go says no more than that it is not installed.
        let format = "{{.StaleReason}}";
        command
            .args(["list", "-deps", "-f", &format!("{{{{.ImportPath}}}} {format}")])
            .args(self.flags()?)
            .current_dir(source);
        let mut packages = Packages {
            to_compile: 0,
            all: 0,
        };
        let what = format!("`go list` in {}", source.display());
        follow(command, &what, cache::LIMIT, |heard| {
            if let Heard::Out(line) = heard {
                packages.all += 1;
                packages.to_compile += usize::from(is_to_be_compiled(&line));
            }
        })
        .await?;
        Ok(packages)
    }

    /// A copy of the modules that files can be taken out of.
    async fn vendor(self, into: &Path) -> Result<()> {
        fs::create_dir(into).with_context(|| format!("cannot make {}", into.display()))?;
        for file in sources(&self.module.directory())? {
            let name = file.file_name().context("a file has a name")?;
            fs::copy(&file, into.join(name)).with_context(|| format!("cannot copy {}", file.display()))?;
        }
        let mut command = self.command();
        command.args(["mod", "vendor"]).current_dir(into);
        let what = format!("`go mod vendor` for {}", self.set.name);
        follow(command, &what, cache::LIMIT, |_| ()).await?;
        for file in self.module.without {
            fs::remove_file(into.join(file))
                .with_context(|| format!("{file} of {} is not there to be left out", self.set.name))?;
        }
        Ok(())
    }

    fn command(self) -> Command {
        let mut command = go::command();
        command.env(
            "CGO_ENABLED",
            match self.module.linkage {
                Linkage::PureGo => "0",
                Linkage::StaticC => "1",
            },
        );
        command
    }

    /// What `go build` and `go list` are both told.
    fn flags(self) -> Result<Vec<String>> {
        let version = self.set.version()?;
        let mut linker = vec![String::from("-s -w")];
        let mut numbers = version.trim_start_matches('v').split('.');
        let (major, minor) = (
            numbers.next().unwrap_or_default(),
            numbers.next().unwrap_or_default(),
        );
        for stamp in self.module.stamps {
            let value = match stamp.value {
                Stamped::Version => &version,
                Stamped::Major => major,
                Stamped::Minor => minor,
                Stamped::Text(text) => text,
            };
            linker.push(format!("-X {}={value}", stamp.variable));
        }
        let mut flags = vec![String::from("-trimpath"), String::from("-buildvcs=false")];
        flags.push(String::from(if self.module.without.is_empty() {
            "-mod=readonly"
        } else {
            "-mod=vendor"
        }));
        if self.module.linkage == Linkage::StaticC {
            linker.push(String::from("-linkmode external -extldflags -static"));
            flags.push(String::from("-tags=netgo,osusergo,seccomp"));
        }
        flags.extend([String::from("-ldflags"), linker.join(" ")]);
        flags.extend(self.set.binaries.iter().map(|binary| binary.from.to_owned()));
        Ok(flags)
    }
}

/// `go.mod`, `go.sum` and whatever Go is beside them, always in the same order.
fn sources(directory: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = || format!("cannot read {}", directory.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).with_context(unreadable)? {
        let path = entry.with_context(unreadable)?.path();
        let is_source = path
            .extension()
            .is_some_and(|extension| ["mod", "sum", "go"].iter().any(|known| extension == *known));
        if is_source {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Reads a line of `go list`: a package and why it is not up to date.
fn is_to_be_compiled(line: &str) -> bool {
    line.split_once(' ').is_some_and(|(package, reason)| {
        package != "unsafe" && !reason.is_empty() && !reason.starts_with("not installed but available")
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::components::sets::Source;
    use crate::components::table::{KUBERNETES, KUBERNETES_NODE};

    fn flags(set: &'static ComponentSet) -> Vec<String> {
        let Source::Go(module) = &set.source else {
            panic!("{} is built with Go", set.name);
        };
        GoBuild { set, module }.flags().unwrap()
    }

    #[test]
    fn kubernetes_is_stamped_with_the_version_its_module_pins() {
        for set in [&KUBERNETES, &KUBERNETES_NODE] {
            let flags = flags(set).join("\n");
            for expected in ["gitVersion=v1.36.3", "gitMajor=1", "gitMinor=36"] {
                assert!(
                    flags.contains(&format!("-X k8s.io/component-base/version.{expected}")),
                    "{expected}"
                );
            }
        }
    }

    #[test]
    fn a_major_version_is_not_the_name_of_a_binary() {
        assert_eq!(built_name("go.etcd.io/etcd/server/v3"), "server");
        assert_eq!(built_name("k8s.io/kubernetes/cmd/kubectl"), "kubectl");
    }

    #[test]
    fn only_what_the_cache_of_go_lacks_counts_as_work() {
        assert!(is_to_be_compiled("a.b/c build ID mismatch"));
        assert!(is_to_be_compiled("a.b/c stale dependency: a.b/d"));
        assert!(!is_to_be_compiled(
            "a.b/c not installed but available in build cache"
        ));
        assert!(!is_to_be_compiled("a.b/c "));
    }
}
