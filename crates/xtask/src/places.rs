//! Where things are: the repository, the cache outside it, and the binaries the workspace builds.

use std::path::{Path, PathBuf};

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

/// `${XDG_CACHE_HOME:-~/.cache}/etcd-operator`, shared with the test bed.
pub(crate) fn cache() -> Result<PathBuf, String> {
    std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache")))
        .map(|base| base.join("etcd-operator"))
        .ok_or_else(|| "neither XDG_CACHE_HOME nor a home directory is known".to_owned())
}

/// A binary of the workspace, beside this one: whatever target directory and profile are in use.
pub(crate) fn built(binary: &str) -> Result<PathBuf, String> {
    let own =
        std::env::current_exe().map_err(|error| format!("cannot find this program's own file: {error}"))?;
    Ok(own.with_file_name(binary))
}
