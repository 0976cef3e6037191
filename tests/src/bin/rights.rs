//! A program that links the client library, for tests to make setuid: says what it has found.

fn main() {
    println!("rights {}", commonhold_sys::environment::has_foreign_rights());
    match commonhold::default_state_directory() {
        Ok(directory) => println!("directory {}", directory.display()),
        Err(error) => println!("no directory {error}"),
    }
    match commonhold::image::include("trap@1") {
        Ok(image) => println!("includes {}@{}", image.name(), image.version()),
        Err(error) => println!("includes nothing: {error}"),
    }
    match commonhold::Host::connect() {
        Ok(host) => println!("connected {}", host.state_directory().display()),
        Err(error) => println!("refused {error}"),
    }
}
