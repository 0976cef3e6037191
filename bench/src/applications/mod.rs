//! The four applications of `bench/applications`, which Forin et al. measured (their Table 3): what is run, where its
//! activities are, and what a run took (docs/APPLICATIONS.md).

mod programs;
mod run;

pub use programs::{Programs, Synchronisation, compile, library};
pub use run::{Place, Run, on_hosts, on_plain_memory};

/// One of the four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Application {
    /// The product of two matrices, by rows.
    Matrix,
    /// Shortest paths in a planar graph.
    Path,
    /// A router for standard cells.
    Locus,
    /// Particles that collide.
    Mp3d,
}

impl Application {
    /// All of them, as in the paper's table.
    pub const ALL: [Application; 4] =
        [Application::Matrix, Application::Path, Application::Locus, Application::Mp3d];

    /// The program's name, which is that of its source.
    pub fn name(self) -> &'static str {
        match self {
            Application::Matrix => "matrix",
            Application::Path => "path",
            Application::Locus => "locus",
            Application::Mp3d => "mp3d",
        }
    }
}

/// An application with its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Which.
    pub application: Application,
    /// Rows, points in a row, columns, particles.
    pub size: u64,
    /// How often it is all done, or steps of time.
    pub steps: u64,
}

impl Task {
    /// That application at that size.
    pub const fn new(application: Application, size: u64, steps: u64) -> Task {
        Task { application, size, steps }
    }

    /// What it is, in words.
    pub fn words(&self) -> String {
        let (name, size, steps) = (self.application.name(), self.size, self.steps);
        match self.application {
            Application::Matrix => format!("{name} {size}²"),
            Application::Path => format!("{name}, {size}² points"),
            Application::Locus => format!("{name}, {size} columns, {steps} iterations"),
            Application::Mp3d => format!("{name}, {size} particles, {steps} steps"),
        }
    }
}
