//! Gives the shared library its SONAME, so that a program linked against one 0.x release asks for that ABI at run time
//! and not for whatever file the name `libforebay.so` happens to be a link to; and keeps it loaded after `dlclose`, since
//! threads of its own may be in it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        // With the minor number, since a minor release may change the ABI before 1.0. tests/install.rs compares it with
        // the names that `make install` gives.
        let series = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libforebay.so.{series}");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
