//! The Go toolchain: is it there, and is it new enough for a tools module.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use tokio::process::Command;

/// The version of the installed Go, such as `go1.26.8`, if it is at least what `go_mod` asks for.
pub(super) async fn version_for(go_mod: &Path) -> Result<String> {
    let text = fs::read_to_string(go_mod).with_context(|| format!("cannot read {}", go_mod.display()))?;
    let needed = needed(&text).with_context(|| format!("{} has no `go` line", go_mod.display()))?;
    // In the root directory no go.mod can make an old Go refuse to say how old it is.
    let output = command()
        .args(["env", "GOVERSION"])
        .current_dir("/")
        .output()
        .await
        .with_context(|| {
            format!("Go is not installed or not on PATH: the test bed is built with Go {needed} or newer")
        })?;
    let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() || found.is_empty() {
        bail!(
            "`go env GOVERSION` failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    if numbers(&found) < numbers(needed) {
        bail!("Go {needed} or newer is needed to build the test bed; `go` on PATH is {found}");
    }
    Ok(found)
}

/// `go`, kept from fetching another toolchain and from building for another machine.
pub(super) fn command() -> Command {
    let mut command = Command::new("go");
    command
        .env("GOTOOLCHAIN", "local")
        .env("GOWORK", "off")
        // What a user has there would change what is built behind the cache's back.
        .env("GOFLAGS", "");
    command.env_remove("GOOS").env_remove("GOARCH").kill_on_drop(true);
    command
}

fn needed(go_mod: &str) -> Option<&str> {
    go_mod
        .lines()
        .find_map(|line| line.strip_prefix("go "))
        .map(str::trim)
}

/// `go1.26.8`, `1.26` and `go1.27rc1` as numbers that can be compared; what is not a number ends it.
fn numbers(version: &str) -> Vec<u32> {
    version
        .trim_start_matches("go")
        .split('.')
        .map_while(|part| {
            part.split(|c: char| !c.is_ascii_digit())
                .next()
                .and_then(|n| n.parse().ok())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number_not_by_letter() {
        assert!(numbers("go1.9.7") < numbers("1.26.0"));
        assert!(numbers("go1.26.8") >= numbers("1.26.0"));
        assert!(numbers("go1.100") > numbers("1.26.0"));
        assert!(numbers("go1.27rc1") > numbers("1.26.0"));
        assert!(numbers("devel") < numbers("1.26.0"));
    }

    #[test]
    fn the_needed_version_is_the_go_line_of_the_module() {
        assert_eq!(needed("module x\n\ngo 1.26.0\n\ntool a\n"), Some("1.26.0"));
        assert_eq!(needed("module x\n"), None);
    }
}
