// SPDX-License-Identifier: Apache-2.0
// The roles of modules that store files or blocks: back ends, and filters that stand on them.
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/core/module/module.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/protocols/storage/block_backend.hpp>
#include <verbena/protocols/storage/file_backend.hpp>
#include <verbena/protocols/storage/suspension.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::storage {

/// What whoever exports a back end tells it. References outlive the back end.
struct open_context {
    std::string name;         ///< of what is opened, for messages: "export /data"
    std::string label;        ///< of its metrics: "/data"
    metric_registry& metrics; ///< of the program
    blocking_pool& lane;    ///< for calls that block; nobody else's, so that what hangs holds up nobody else
    bool read_only = false; ///< nothing may change; a filter or back end refuses it
    /// A shard's thread must never take a caller's rights: a kernel refuses RDMA files to a thread that did.
    bool keep_shard_identity = false;
    /// A user by numbers.
    struct ids {
        std::uint32_t uid = 0; ///< of the user
        std::uint32_t gid = 0; ///< of its group
    };
    /// Every caller acts as this user, whatever it claims.
    std::optional<ids> everybody = {};
    /// Until when begin_open() and finish() may wait for what does not answer: then they go on without it, or fail.
    /// Nothing: as long as the module does by itself.
    std::optional<std::chrono::steady_clock::time_point> answer_by = {};
};

/// A back end, and what people are told of it.
struct opened_backend {
    std::unique_ptr<file_backend> files; ///< owned; it goes before the metrics do
    metric_registrations metrics;        ///< of `files`; they end before it
    std::string source;                  ///< "/srv/data"
    std::vector<std::string> options;    ///< what was chosen, as a configuration has it: "sync"
    std::string notes;                   ///< what it can and can't do here; empty for nothing
    std::string warning;                 ///< what its user gives up; empty for nothing
    bool read_only =
        false; ///< nothing can be changed, whatever was asked for: who exports it says so to callers
    /// Whether anybody but this back end's callers may change the files.
    bool local_writers = true;
    /// Whether callers have rights of their own there; otherwise nobody is told from others.
    bool tells_callers_apart = true;
    /// The folder of this host's files in which callers reach what their rights allow; empty if there is none.
    std::string local_tree;
    /// Of local_tree: every caller has the rights of this process.
    bool as_process = false;
    /// Whether what is exported is there now; empty where it always is. Any thread, as long as `files` is there.
    std::function<bool()> is_up;
    /// Why it is not, for people; empty while it is. As is_up.
    std::function<std::string()> why_down;
    /// Whether something that file_backend::local_locks_of() gave is still there; empty where it never is. Likewise.
    std::function<bool()> has_locks;
    /// What lets go of the file system for a while; nullptr if nothing does. Lives as long as `files`.
    suspendable* suspension = nullptr;
    /// Nobody wants `files`, which something still runs for: what was not there when it was opened is not taken into use
    /// when it comes. Empty where nothing comes later. Any thread, as long as `files` is there.
    std::function<void()> not_wanted;
};

/// A back end that is being opened: what begin_open() began. Dropped, it opens nothing, and waits for nothing.
class opening {
public:
    virtual ~opening() = default;
    /// The rest of open(). Called once, on the thread that began.
    virtual opened_backend finish() = 0;
};

/// A module that opens back ends. Its settings stand in the table of what it is opened for: in an export's.
class backend_module : public module {
public:
    std::string_view role() const noexcept final { return "back end"; }
    std::string_view role_word() const noexcept final { return "backend"; }
    /// Looks at one table of settings(), without opening anything; may complete it. Throws config_error; `name` is for messages.
    virtual void check(setting_values& values, const std::string& name) const { (void)values, (void)name; }
    /// Throws config_error, with the cure, when it can't be opened. Not on a shard; may block.
    virtual opened_backend open(const setting_values& values, const open_context& context) = 0;
    /// Begins open() without waiting for a disk, so that those of several back ends are waited for together; finish() does what is left.
    /// Both arguments outlive what is returned, which is not nullptr. Throws as open(). Unless a module does better, finish() does all.
    virtual std::unique_ptr<opening> begin_open(const setting_values& values, const open_context& context)
    {
        class all final : public opening {
        public:
            all(backend_module& by, const setting_values& values, const open_context& context) noexcept
                : by_(by), values_(values), context_(context)
            {
            }
            opened_backend finish() override { return by_.open(values_, context_); }

        private:
            backend_module& by_;
            const setting_values& values_;
            const open_context& context_;
        };
        return std::make_unique<all>(*this, values, context);
    }
};

class block_filter;

/// A module that puts something between a back end and whoever uses it. Its settings stand in a table of the export's `filter`.
class filter_module : public module {
public:
    std::string_view role() const noexcept final { return "filter"; }
    std::string_view role_word() const noexcept final { return "filter"; }
    /// As backend_module::check(), of the filter's own table.
    virtual void check(setting_values& values, const std::string& name) const { (void)values, (void)name; }
    /// Takes `on.files` over and puts in its place what stands on it; may add to what people are told. Throws config_error, with the
    /// cure.
    virtual void put_on(opened_backend& on, const setting_values& values, const open_context& context) = 0;
    /// The same on block devices; nullptr if it stands on files only. Lives as long as the module.
    virtual block_filter* for_blocks() noexcept { return nullptr; }
};

/// What whoever serves a block device tells its back end. References outlive the back end.
struct open_block_context {
    std::string name;         ///< of what is opened, for messages: "device vm1"
    std::string label;        ///< of its metrics: "vm1"
    metric_registry& metrics; ///< of the program
    blocking_pool& lane;      ///< for calls that block; nobody else's
    bool read_only = false;   ///< nothing may be written
};

/// A block device, and what people are told of it.
struct opened_block {
    std::unique_ptr<block_backend> device; ///< owned; it goes before its metrics do
    metric_registrations metrics;          ///< of `device`; they end before it
    std::string source;                    ///< "/dev/nvme0n1"
    std::vector<std::string> options;      ///< what was chosen, as a configuration has it
    std::string notes;                     ///< what it can and can't do here; empty for nothing
    std::string warning;                   ///< what its user gives up; empty for nothing
    resizable* size = nullptr;             ///< nullptr: its size is for good. Lives as long as `device`
};

/// A filter module's side for block devices. Its settings stand in a table of the device's `filter`.
class block_filter {
public:
    /// The settings of the filter's table for a device.
    virtual std::vector<setting> settings() const = 0;
    /// As backend_module::check(), of that table.
    virtual void check(setting_values& values, const std::string& name) const { (void)values, (void)name; }
    /// Takes `on.device` over and puts in its place what stands on it; may add to what people are told. Throws config_error, with the
    /// cure.
    virtual void put_on(opened_block& on, const setting_values& values,
                        const open_block_context& context) = 0;

protected:
    ~block_filter() = default;
};

/// A module that opens block devices. Its settings stand in the table of the device.
class block_module : public module {
public:
    std::string_view role() const noexcept final { return "block back end"; }
    std::string_view role_word() const noexcept final { return "block"; }
    /// Looks at one table of settings(), without opening anything; may complete it. Throws config_error; `name` is for messages.
    virtual void check(setting_values& values, const std::string& name) const { (void)values, (void)name; }
    /// Throws config_error, with the cure, when it can't be opened. Not on a shard; may block.
    virtual opened_block open(const setting_values& values, const open_block_context& context) = 0;
};

} // namespace verbena::storage

#pragma GCC visibility pop
