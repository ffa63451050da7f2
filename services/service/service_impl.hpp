// SPDX-License-Identifier: Apache-2.0
// What a verbena::service is made of. service.cpp has what it is told, service_start.cpp its start, service_stop.cpp its end,
// service_run.cpp the main() of a daemon.
#pragma once

#include "control_server.hpp"
#include "listen_url.hpp"
#include "reloader.hpp"
#include "served_protocol.hpp"
#include "shard_watchdog.hpp"
#include "state_directory.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/module/start_error.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/queued_log.hpp>
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/services/metrics.hpp>
#include <verbena/services/service.hpp>

#include <atomic>
#include <chrono>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace verbena {

namespace services {

/// All that a service of these modules can be told.
std::vector<setting> all_settings(const module_table& modules);

inline setting_values& table_of(setting_values& root, std::string_view name)
{
    return std::get<setting_values::value::tables>(root.find(name)->data).front();
}

/// A service may do without metrics, which metrics::serve() can't know.
template<class F>
void or_off(F f)
{
    try {
        f();
    } catch (const start_error& e) {
        throw start_error(e.what() + std::string("; or off, for no metrics"));
    } catch (const config_error& e) {
        throw config_error(e.what() + std::string("; or off, for no metrics"));
    }
}

} // namespace services

struct service::impl final : module_host, std::enable_shared_from_this<service::impl> {
    // A protocol with listeners of its own, and those that are served with it.
    struct served {
        std::string name;
        protocol_module* protocol = nullptr;
        std::vector<protocol_module*> all; // it first
        std::vector<rpc::program_module*> programs;
        services::listen_plan plan;
        std::unique_ptr<services::server> server;
        std::unique_ptr<std::atomic<bool>> stopping = std::make_unique<std::atomic<bool>>(false);
    };

    // Of across_shards().
    struct hook {
        shards_hook opens;
        shards_hook closes;
        shards_hook drains;
    };

    runtime& shards() noexcept override { return *rt; }
    metric_registry& metrics() noexcept override { return registry; }
    module_table& modules() noexcept override { return table; }
    peer_shares& peers() noexcept override { return *shares; }
    bool uses_rdma_devices() const noexcept override { return uses_devices; }
    const std::string& state_directory() override
    {
        const std::string& path = services::table_of(values, "daemon").text("state");
        if (path.empty())
            (void)services::default_state_directory();
        if (!std::exchange(has_state, true))
            services::make_state_directory(path);
        return path;
    }

    services::configuration_words& words_before(const std::string& said);
    void say(std::string_view path, setting_values::value v);
    static void complete_daemon(setting_values& values);
    void configure_protocols();
    void configure_protocol(std::string_view name, protocol_module& m);
    void start();
    void start_log_writer();
    void start_runtime();
    metrics::serve_options probes();
    std::string control_path() const;
    void start_control();
    void call(const shards_hook& h, const char* failure);
    void take_down(std::chrono::milliseconds limit);
    void give_up(const char* why);
    bool stop_within(std::chrono::milliseconds drain, std::chrono::milliseconds grace);
    std::string still_running() const;
    std::string in_clear_text() const;
    std::string served_text(const setting_values& values) const;
    void prepare_reloads();
    void reload_by_signal();
    std::string serving_now() const;
    std::string draining_text() const;
    void leave_behind() noexcept;
    runtime_options options() const;

    // A descriptor for what serve() was given.
    struct own_protocol {
        std::string name;
        module_descriptor descriptor;
    };

    std::string program;
    std::string version;
    services::configuration_words words; // of load() and set()
    std::list<own_protocol> own_protocols;
    std::vector<hook> hooks;
    std::size_t opened = 0; // of hooks, those whose opens() was called
    std::size_t open = 0;   // those whose opens() has returned
    setting_values values;
    std::optional<queued_log> log_writer; // outlives all that logs, if it ends in its time
    metric_registry registry;             // outlives all that register there
    std::optional<peer_shares> shares;    // outlives all that charge peers
    std::unique_ptr<verbena::iwarp::device> iwarp =
        verbena::iwarp::make_device(); // outlives all that its connections may touch
#ifdef VERBENA_HAS_RDMA
    // Likewise, one for each protocol: its contexts end with it, and are of the device that was chosen for it.
    std::vector<std::unique_ptr<verbena::rdma::host>> rdma;
#endif
    std::unique_ptr<runtime> rt; // also when its shards have ended, for modules that go
    std::atomic<bool> has_shards{false};
    module_table table; // modules go when the shards have ended, and before what the host has for them
    metric_registrations registrations;
    std::optional<services::shard_watchdog> health; // asked by the exporter's thread
    std::atomic<const char*> not_ready{"starting"};
    std::optional<metrics::server> exporter;
    std::vector<control_command> own_commands;   // of add_command()
    std::optional<services::reloader> reloading; // from start() on
    std::thread reloads_by_signal;
    // The thread is at it, or will be once more: what a later signal is about may have been written behind the last look.
    enum class by_signal : std::uint8_t { nothing, reloads, once_more };
    std::atomic<by_signal> signalled{by_signal::nothing};
    std::atomic<std::uint64_t> drain_seconds{0};
    mutable std::mutex serving_mutex;
    std::string serving;   // served_text() of what is served now
    std::string in_effect; // the configuration, likewise
    std::optional<services::control_server> control;
    std::vector<served> protocols;
    std::vector<module*> order;
    std::vector<module*> started; // or tried to
    std::string text;
    std::atomic<const char*> stopping{nullptr}; // whose stop() runs
    std::size_t listener_count = 0;
    std::set<std::string> addresses;
    bool uses_devices = false;
    bool has_state = false;
    bool reloads = false; // it was configured by load() and set()
    bool configured = false;
    bool began = false;
    bool running = false;
    bool runs = false;         // run() waits for signals
    std::thread stopper;       // runs take_down()
    mutable std::mutex ending; // of what it and who gives it up end: the exporter, the control socket
    std::future<void> stopped;
    std::string unfinished;
};

} // namespace verbena
