// SPDX-License-Identifier: Apache-2.0
// The exports that are served, and how a reload exchanges some of them while all others go on. docs/internals/control.md.
#pragma once

#include "served_export.hpp"

#include <verbena/core/module/reload.hpp>
#include <verbena/protocols/nfs/server/v4/commons.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace verbena::nfs {

/// Opens exports, publishes them in a table, and closes those that go when nobody uses them any more.
class export_set {
public:
    using exports = std::vector<std::shared_ptr<served_export>>;
    /// Lists of exports that calls of earlier reloads may still use, and exports that are being closed.
    static constexpr std::size_t most_old_lists = 64;
    static constexpr std::size_t most_closing = 64;
    /// Back ends that can't be closed yet: others need their locks, or a disk does not answer.
    static constexpr std::size_t most_parked = 1024;
    /// How long disks are waited for on which something was opened for nothing.
    static constexpr std::chrono::milliseconds usual_close_patience = std::chrono::seconds(1);

    /// `table` outlives it, and is read by the shards.
    explicit export_set(export_table& table) noexcept;
    export_set(const export_set&) = delete;
    /// stop() was called, if anything was opened.
    ~export_set();

    /// At the start. Throws config_error.
    void open(module_host& host, std::vector<export_config> wanted, std::span<const listen_target> targets);
    /// Those of now, in the table's order. Any thread.
    exports all() const;

    /// What a reload goes by.
    struct terms {
        module_host& host;
        std::span<const listen_target> targets;
        v4::server_commons* commons = nullptr; ///< or nullptr: version 4 is not served
        bool gives_layouts = false;            ///< pnfs was in use at the start
        bool allow_public = false;
        std::string state; ///< the directory
        /// How long apply() waits for shards.
        std::chrono::milliseconds patience = std::chrono::seconds(5);
        /// How long a plan that is dropped waits for disks that it has opened something on.
        std::chrono::milliseconds close_patience = usual_close_patience;
        std::size_t parked = most_parked;
        /// Those that are suspended, or about to be: by the number of their trees (export_options::space), their paths.
        std::map<std::uint32_t, std::string> suspended = {};
    };
    /// As reloadable::plan_reload(). nullptr: there is nothing to change.
    std::unique_ptr<reload_plan> plan(const terms& by, std::vector<export_config> wanted, bool looks_only);
    /// What is being closed is left to the end of this object. Waits for disks that it is being closed on.
    void stop() noexcept;

private:
    class change;
    struct closing;
    struct round;
    class taking;
    struct parked;
    void close(closing& c) noexcept;
    bool pause(std::unique_lock<std::mutex>& lock);
    void forget_closed() noexcept;
    void give_up(std::list<parked>& opened, std::chrono::milliseconds patience) noexcept;

    export_table& table_;
    mutable std::mutex mutex_; // of all that follows
    std::condition_variable changed_;
    exports served_;
    std::list<closing> closing_;
    // Back ends of trees that other exports are of, too, by which there are locks of files; and those of no use that a disk keeps.
    struct parked {
        std::shared_ptr<export_backend> backend;
        std::string pseudo;
        std::uint32_t space = 0; // 0: nobody uses it, but something runs on its lane
    };
    std::list<parked> parked_;
    bool stops_ = false;
};

} // namespace verbena::nfs
