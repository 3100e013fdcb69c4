//! Gives the shared library its SONAME, so that a program linked against one 0.x release asks for that ABI at run time
//! and not for whatever file the name `libforebay.so` happens to be a link to; and keeps it loaded after `dlclose`, since threads of
//! its own may be in it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // Cargo sets the major version; tests/install.rs compares the SONAME with the names that `make install` gives.
        let major = std::env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_else(|_| "0".into());
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libforebay.so.{major}");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
