//! The command `warpjoin`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use warpjoin_cli::{
    BenchCompareArgs, CliError, ShellArgs, TpchArgs, TpchReportArgs, WarmArgs, describe_devices, print_line,
    run_bench_compare, run_shell, run_tpch, run_tpch_report, warm,
};

// Planning makes thousands of small allocations, which take half of its time with the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs SQL joins and aggregations on GPUs, or on simulated devices.
#[derive(Debug, Parser)]
#[command(name = "warpjoin", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List devices, and why any cannot be used
    Devices,
    /// Run TPC-H queries through warpjoin and stock DataFusion, and compare answers and times
    Tpch(TpchArgs),
    /// Print a report of `tpch --json` as a Markdown table, and draw a plot
    TpchReport(TpchReportArgs),
    /// Compare reports before and after a change; fails if a figure has grown by more than 5 %
    BenchCompare(BenchCompareArgs),
    /// Run SQL over Parquet and CSV files
    Sql(ShellArgs),
    /// Compile the kernels that any query may want: once a machine, ahead of the first query
    Warm(WarmArgs),
}

/// Stack of the threads that plan queries. DataFusion walks over expressions and plans by functions that call themselves:
/// thousands of ORs or UNIONs overflow the 2 MiB that threads have by default. The system gives only as much as is used.
const STACK_BYTES: usize = 256 << 20;

fn main() -> ExitCode {
    let command = || std::thread::Builder::new().name("warpjoin".into()).stack_size(STACK_BYTES).spawn(run);
    match command().map(std::thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        // The panic has printed its message.
        Ok(Err(_)) => ExitCode::from(101),
        Err(error) => {
            eprintln!("error: no thread to run on: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The whole command, on a thread with a large stack.
fn run() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn")).init();
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().thread_stack_size(STACK_BYTES).enable_all().build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start threads: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = match arguments.command {
        Command::Devices => print_line(&describe_devices()).map(|()| true),
        Command::Tpch(arguments) => runtime.block_on(run_tpch(&arguments)),
        Command::TpchReport(arguments) => run_tpch_report(&arguments),
        Command::BenchCompare(arguments) => run_bench_compare(&arguments),
        Command::Sql(arguments) => runtime.block_on(run_shell(&arguments)),
        Command::Warm(arguments) => warm(&arguments).map(|()| true),
    };
    // Does not wait for a blocking thread that a cancelled query may still use.
    runtime.shutdown_background();
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) | Err(CliError::OutputClosed) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
