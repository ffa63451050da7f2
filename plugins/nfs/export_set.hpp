// SPDX-License-Identifier: Apache-2.0
// The exports that are served, and how a reload exchanges some of them while all others go on. docs/internals/control.md.
#pragma once

#include "served_export.hpp"
#include "stepped.hpp"

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

/// Opens exports, publishes them in a table, and closes those that go when nobody uses them any more. One thread closes them all, step by
/// step; what may wait for a disk runs on a lane.
class export_set {
public:
    using exports = std::vector<std::shared_ptr<served_export>>;
    /// Lists of exports that calls of earlier reloads may still use.
    static constexpr std::size_t most_old_lists = 64;
    /// Exports that are being closed, before a reload that removes more of them. So there are most_closing + max_exports at most.
    static constexpr std::size_t most_closing = export_table::max_exports;
    /// Threads that close what is on a disk, which may hang then; what they have no time for waits.
    static constexpr unsigned closing_threads = 64;
    /// Back ends that can't be closed yet: others need their locks, or a disk does not answer.
    static constexpr std::size_t most_parked = 1024;
    /// How long disks are waited for on which something was opened for nothing.
    static constexpr std::chrono::milliseconds usual_close_patience = std::chrono::seconds(1);

    /// `table` outlives it, and is read by the shards.
    explicit export_set(export_table& table) noexcept;
    export_set(const export_set&) = delete;
    /// stop() was called, if anything was opened.
    ~export_set();

    /// At the start. Throws config_error. `wait`: of this start.
    void open(module_host& host, std::vector<export_config> wanted, std::span<const listen_target> targets,
              hung_wait& wait);
    /// Those of now, in the table's order. Any thread.
    exports all() const;
    /// One that is not served any more, and is there still.
    struct leaving {
        exported_as as;
        std::string backend_name;
        std::string why; ///< for people: "waits for calls of clients that use it: ..."
    };
    /// Those that reloads took away. Any thread.
    std::vector<leaving> all_leaving() const;
    /// How many exports all_leaving() has, and how many were opened for nothing and wait for their disks. Any thread.
    struct unclosed {
        std::size_t removed = 0;
        std::size_t unused = 0;
    };
    unclosed count_unclosed() const;

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
        std::size_t closing = most_closing;
    };
    /// As reloadable::plan_reload(). nullptr: there is nothing to change.
    std::unique_ptr<reload_plan> plan(const terms& by, std::vector<export_config> wanted, bool looks_only);
    /// What is being closed is left to the end of this object. Waits for disks on which back ends end.
    void stop() noexcept;

private:
    class change;
    struct closing;
    struct round;
    class taking;
    struct parked;
    void begin_keeper(runtime& shards);
    void keep() noexcept;
    void close_unused(std::unique_lock<std::mutex>& lock) noexcept;
    stepped close(closing& c, std::unique_lock<std::mutex>& lock);
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
    blocking_pool* lane_ = nullptr; // on which back ends end
    std::thread keeper_;            // begun when something is to be closed
    bool stops_ = false;
};

} // namespace verbena::nfs
