// SPDX-License-Identifier: Apache-2.0
// Reads the configuration of a running service again, and has modules take what can change. docs/internals/control.md.
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/core/module/control.hpp>
#include <verbena/core/module/module.hpp>
#include <verbena/core/module/protocol_module.hpp>
#include <verbena/core/module/reload.hpp>
#include <verbena/core/module/settings.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace verbena::services {

/// What a program said its configuration is, in the order in which it did. Later words stand on top of earlier ones.
class configuration_words {
public:
    /// Each throws config_error, with the place, and has said nothing then.
    void load(const std::string& path);
    void set(std::string_view path, setting_values::value v);
    void set(setting_values values);

    const setting_values& said() const noexcept { return said_; }
    bool has_file() const noexcept;
    /// All of it, with files read again. `in_place_of_file`: another file for the first one and none of the others; or nullptr.
    setting_values again(const std::string* in_place_of_file = nullptr) const;

private:
    struct file {
        std::string path;
    };
    struct word {
        std::string path;
        setting_values::value value;
    };
    std::vector<std::variant<file, word, setting_values>> words_;
    setting_values said_;
};

class reloader {
public:
    /// What it knows of the service, which outlives it.
    struct terms {
        std::string program;
        const configuration_words* words = nullptr;
        module_table* modules = nullptr;
        std::function<std::vector<setting>()> settings;
        /// What check() leaves to the service: throws config_error.
        std::function<void(setting_values&)> complete;
        /// Protocols with listeners of their own, by their tables; and those that are served with them.
        std::vector<std::pair<std::string, std::vector<protocol_module*>>> protocols;
        setting_values running;
        /// Settings of [daemon] that change at once, and how. Neither waits nor throws.
        std::vector<std::pair<std::string, std::function<void(const setting_values&)>>> at_once;
        /// Called after each reload, with what is configured now.
        std::function<void(const setting_values&)> reloaded;
        /// Whether the service keeps something in its state folder.
        bool has_state = false;
    };
    explicit reloader(terms t);
    reloader(const reloader&) = delete;

    struct outcome {
        std::vector<reload_change> changes;
        std::vector<std::string> late;
    };
    /// Any thread but a shard's. Throws config_error or std::runtime_error; what runs is as it was then. The log has the same.
    enum class busy : bool { fails, waits };
    outcome reload(busy while_another_runs = busy::fails);
    /// What reload() would do with `file`, or with the files that the service has.
    outcome look(const std::string* file);
    /// Waits for one that is under way, and refuses all others.
    void stop() noexcept;

    /// verbena_config_last_reload_*.
    metric_registrations expose(metric_registry& registry) const;
    /// `reload` and `check`.
    std::vector<control_command> commands();

private:
    struct plan;
    plan make_plan(const std::string* file, bool looks_only);
    std::unique_lock<std::mutex> turn(busy while_another_runs = busy::fails);

    terms terms_;
    std::mutex turn_; // of all that is not atomic
    std::atomic<bool> stops_{false};
    std::atomic<bool> succeeded_{true};
    std::atomic<double> last_success_;
};

} // namespace verbena::services
