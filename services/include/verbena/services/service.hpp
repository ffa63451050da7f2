// SPDX-License-Identifier: Apache-2.0
// service: a program's shards, listeners, metrics and signals, composed from modules.
//
// verbenad is a command line and a configuration file in front of it. Somebody's own program puts its modules into the table, says
// in settings what they shall do, and calls run().
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/core/module/control.hpp>
#include <verbena/core/module/module.hpp>
#include <verbena/core/module/settings.hpp>
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/result.hpp>
#include <verbena/protocols/rpc/program.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena {

/// One for a process. Made, used and destroyed by one thread, which is no shard: main()'s. Nothing here ends the
/// process.
class service {
public:
    /// `program` and `version` are what people are told is running.
    explicit service(std::string program = "verbena", std::string version = {});
    /// Stops, without waiting for what is in flight, if stop() was not called. What still runs after that, or ran on
    /// when stop() gave up, is left behind with its threads and its memory, and goes when it ends: what its programs
    /// refer to must live until then. Whoever ends main() with such threads leaves by std::_Exit(), since the
    /// destructors of static objects would run beside them.
    ~service();
    service(const service&) = delete;

    /// Empty at first. Filled before settings() and configure().
    module_table& modules() noexcept;

    /// The programs of one shard.
    using make_programs = std::function<std::vector<std::unique_ptr<rpc::program>>(shard&)>;
    /// Serves RPC programs of this program's own, without a module around them, at these URLs ("tcp://127.0.0.1:7000"). `name` is
    /// their table, whose `listen` may say otherwise, and must not be a module's. `make` is called on each shard, where the
    /// programs then live, and must stay callable until stop(). `settings` are what else may stand in the table, which effective() tells:
    /// effective().table(name).number("start"). Before configure(); else it throws std::logic_error. Throws config_error.
    void serve(std::string name, std::vector<std::string> listen, make_programs make,
               std::vector<setting> settings = {});

    /// What across_shards() calls.
    using shards_hook = std::function<void(runtime&)>;
    /// What lives across the shards, beside the programs of each: a store, a task that cleans up. `opens` is called with the shards
    /// when they run and before any program is made; what it throws start() throws. `closes` is called when no call runs and the programs
    /// are gone, and the shards still run, so that tasks may end on them (runtime::run()); what it throws is logged. It is called
    /// if `opens` was, in the reverse order of several. `opens` on the thread that calls start(), `closes` on one of stop()'s; neither
    /// is a shard, so both may wait. Before start().
    ///
    /// `drains`, if there is one, is called when the stop begins and before the time to drain does, on a thread of
    /// stop()'s: it wakes calls that wait for something to come, so that they answer and the stop need not wait for them.
    /// Listeners are still open, and calls still come. It is called if `opens` has returned, in the reverse order of
    /// several; what it throws is logged.
    void across_shards(shards_hook opens, shards_hook closes, shards_hook drains = {});

    /// A command of this program's own, for `verbena admin`, beside those of its modules (controlled). What it refers to lives until
    /// stop() has returned. Before start(), which throws config_error for a name that breaks a rule or is taken.
    void add_command(control_command command);

    /// One setting, by its path: set("daemon.shards", 2). For configure() without values, and before that: behind it, it throws
    /// std::logic_error. What it may be is checked there. Throws config_error with the place where a file has something else in place
    /// of a table of the path.
    void set(std::string_view path, bool value);
    void set(std::string_view path, std::int64_t value);
    void set(std::string_view path, int value) { set(path, std::int64_t(value)); }
    void set(std::string_view path, std::string value);
    void set(std::string_view path, const char* value) { set(path, std::string(value)); }
    void set(std::string_view path, std::vector<std::string> value);
    /// All that stands in a table of settings, in place of what was said before.
    void set(setting_values values);
    /// What a file in TOML says, in place of what was set before; what is set afterwards is in place of that. When, as set().
    /// Throws config_error with the place.
    void load(const std::string& path);

    /// All that can be told: [daemon], [memory], [metrics], and a table for each protocol of modules(). docs/reference/config.md.
    std::vector<setting> settings() const;
    /// Takes what it shall do, and lets the modules take theirs. Opens nothing. A protocol is served if its table is there. Throws
    /// config_error, naming the place and the cure, for what can't be. Loads the modules that `modules` names first, but those that
    /// load_modules() has loaded: the program has to export the library to them (docs/howto/embed.md). Once.
    void configure(setting_values values);
    /// Likewise, with what set() and load() said.
    void configure();
    /// What configure() was given, completed.
    const setting_values& effective() const noexcept;

    /// Starts shards, modules and listeners, in this order, each module behind what it needs. The process keeps its umask, limits
    /// and signals: files are made with modes that the umask cuts (run() clears it). Throws config_error, or what a
    /// module throws; all that was started is then stopped, as by stop(). From here on until this is destroyed a thread writes
    /// the log (queued_log). Once, after configure().
    void start();
    /// Lines for people: what is served, where, and how it is reached.
    const std::string& start_text() const noexcept;
    /// What this program counts, and whatever else is registered there. Any thread; as long as the service.
    metric_registry& metrics() noexcept;
    /// The shards, from start() on until stop() has returned. Throws std::logic_error where there are none. shard::run() and
    /// runtime::run() bring work to one.
    runtime& shards();
    /// Takes no more connections, lets calls in flight finish within `drain_seconds`, and stops what start() started, in the
    /// reverse order. A call that a file system or device keeps can't be recalled: if all has not come back `grace`
    /// later, stop() logs what still runs, and yields ETIMEDOUT. The stop goes on meanwhile, and stop() called again
    /// waits for `grace` again. Success if there is nothing left to stop.
    result<void> stop(std::chrono::milliseconds grace = std::chrono::seconds(5));
    /// What still ran when stop(), start() or run() gave up waiting for it: a line for each protocol, lane of blocking
    /// calls and module. Empty if nothing runs, or nobody gave up.
    const std::string& unfinished() const noexcept;

    /// main() of a daemon: blocks signals, clears the umask, raises soft limits of descriptors and locked memory, starts, prints start_text() and "ready", tells the service manager, waits for SIGTERM or
    /// SIGINT, stops. SIGHUP meanwhile: reads the files of load() again, as `verbena admin reload` does, and the log says what came of it. SIGUSR1: writes runtime::describe_tasks() to the log, and waits for nobody who reads it. Calls configure() first if nobody did. Returns 0, or 1 if stop() gave up: main()
    /// then leaves by std::_Exit(1). To be called before the process has threads of its own. Throws what start()
    /// throws.
    int run();

private:
    struct impl;
    std::shared_ptr<impl> impl_; // also of the thread that stops it, which may outlive this
};

} // namespace verbena

#pragma GCC visibility pop
