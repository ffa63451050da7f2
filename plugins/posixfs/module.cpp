// SPDX-License-Identifier: Apache-2.0
// posixfs as a module: a folder of this host.
#include "begun_open.hpp"

#include <verbena/core/module/start_error.hpp>
#include <verbena/plugins/modules.hpp>
#include <verbena/plugins/posixfs.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/printable.hpp>
#include <verbena/protocols/storage/module.hpp>

#include <array>
#include <filesystem>
#include <memory>
#include <unistd.h>

namespace verbena::posixfs {

namespace {

constexpr std::size_t max_series = 64; // exports with series of their own

std::string cure_of(const error& e, const std::string& directory, const posixfs_options& options)
{
    if (e == std::errc::operation_not_permitted && lends_its_rights() && !options.callers_are_daemon)
        return "; give this process CAP_SETUID and CAP_SETGID, run it as a plain user without capabilities, "
               "or "
               "ask for it: all_squash,anonuid=" +
               std::to_string(::geteuid()) + ",anongid=" + std::to_string(::getegid());
    if (e == std::errc::not_a_directory)
        return "; an export is a directory: name the one that holds it";
    if (e == std::errc::no_such_file_or_directory)
        return directory.find(':') == std::string::npos
                   ? "; make it, or correct its name"
                   : "; make it, or correct its name: a pseudo-path behind the : begins with /";
    if (e == std::errc::permission_denied)
        return "; let this process's user in, or run it as root";
    if (options.handles == handle_mode::kernel && is_without_handles(e))
        return "; leave out handles=kernel: posixfs then keeps a table of paths, whose handles end with it";
    return {};
}

class posixfs_module final : public storage::backend_module {
public:
    std::vector<setting> settings() const override
    {
        return {
            setting::text("directory", "",
                          "The tree to serve; a relative path counts from the folder in which the "
                          "program was started")
                .main(),
            setting::flag("mountpoint", false,
                          "Serves the directory only while something is mounted there; clients wait for it "
                          "meanwhile"),
            setting::text("mountpoint_at", "",
                          "As mountpoint, of another directory, such as one above: mountpoint=DIR of a "
                          "command line")
                .form("DIR"),
            setting::flag("crossmnt", false, "Clients also see what is mounted beneath the directory"),
            setting::flag(
                "async", false,
                "Unsafe: answers before changes are on stable storage, so that what a client was told is "
                "written may be lost when power fails"),
            setting::word(
                "handles", {"auto", "kernel", "path"}, "auto",
                "How file handles are made: kernel, by the file system, so that they survive a restart "
                "(needs "
                "CAP_DAC_READ_SEARCH); path, by a table of paths in memory; auto: kernel where that works"),
            setting::flag("leases", true,
                          "Clients of NFSv4.1 get read delegations, for which processes of this host that "
                          "write are made to wait"),
            setting::flag(
                "local_locks", true,
                "Clients' locks of bytes are also locks of the file system, so that processes of this "
                "host see them, and theirs count for clients"),
        };
    }

    // Beside rdma:// listeners root's calls would change threads.
    void prepare() override
    {
        if (const auto given_up = give_up_resource_rights(); !given_up)
            log(log_level::warning, "posixfs",
                "CAP_SYS_RESOURCE is not given up: beside rdma:// listeners root's calls change threads",
                {{"error", given_up.error().message()}});
    }

    void check(setting_values& values, const std::string& name) const override
    {
        auto& directory = std::get<std::string>(values.find("directory")->data);
        if (directory.empty())
            throw config_error(name + " needs a directory, as in /srv/data:/data");
        directory = std::filesystem::absolute(directory).lexically_normal().string();
        if (directory.size() > 1 && directory.back() == '/')
            directory.pop_back();
        const std::string& point = values.text("mountpoint_at");
        if (!point.empty() && point.front() != '/')
            throw config_error(
                values.place("mountpoint_at"),
                name + ": mountpoint_at: " + printable(point) +
                    " is no absolute path: write where the file system is mounted, as in /srv");
    }

    storage::opened_backend open(const setting_values& values, const storage::open_context& context) override
    {
        return begin_open(values, context)->finish();
    }
    std::unique_ptr<storage::opening> begin_open(const setting_values& values,
                                                 const storage::open_context& context) override
    {
        return std::make_unique<opening>(values, context);
    }

private:
    class opening final : public storage::opening {
    public:
        opening(const setting_values& values, const storage::open_context& context)
            : values_(values),
              context_(context),
              options_(options_of(values, context)),
              begun_(options_, context.lane, context.answer_by)
        {
        }
        storage::opened_backend finish() override { return opened(values_, context_, options_, begun_); }

    private:
        const setting_values& values_;
        const storage::open_context& context_;
        const posixfs_options options_;
        begun_open begun_;
    };
    static posixfs_options options_of(const setting_values& values, const storage::open_context& context)
    {
        posixfs_options options;
        options.root = values.text("directory");
        options.name = context.label;
        options.async = values.flag("async");
        options.crossmnt = values.flag("crossmnt");
        options.leases = values.flag("leases");
        options.local_locks = values.flag("local_locks");
        options.watch = true;
        options.mountpoint = values.text("mountpoint_at");
        if (options.mountpoint.empty() && values.flag("mountpoint"))
            options.mountpoint = options.root;
        options.read_only = context.read_only;
        options.keep_shard_identity = context.keep_shard_identity;
        options.callers_are_daemon = context.everybody && context.everybody->uid == ::geteuid() &&
                                     context.everybody->gid == ::getegid();
        if (const std::string& handles = values.text("handles"); handles != "auto")
            options.handles = handles == "path" ? handle_mode::path_table : handle_mode::kernel;
        return options;
    }
    static storage::opened_backend opened(const setting_values& values, const storage::open_context& context,
                                          const posixfs_options& options, begun_open& begun)
    {
        auto opened = begun.finish();
        if (!opened)
            throw_start_failure(opened.error(),
                                context.name + ": " + values.text("directory") + ": " +
                                    opened.error().message() +
                                    cure_of(opened.error(), values.text("directory"), options));
        storage::opened_backend out;
        out.files = std::move(*opened);
        out.source = values.text("directory");
        out.options = {options.async ? "async" : "sync"};
        if (options.crossmnt)
            out.options.emplace_back("crossmnt");
        if (!options.leases)
            out.options.emplace_back("leases=no");
        if (!options.local_locks)
            out.options.emplace_back("local_locks=no");
        if (!options.mountpoint.empty())
            out.options.emplace_back(options.mountpoint == options.root
                                         ? "mountpoint"
                                         : "mountpoint=" + options.mountpoint.string());
        out.suspension = suspension_of(*out.files);
        out.is_up = [files = out.files.get()] { return root_state_of(*files) == root_state::up; };
        out.has_locks = [files = out.files.get()] { return has_local_locks(*files); };
        out.why_down = [files = out.files.get()] { return root_trouble_of(*files); };
        out.not_wanted = [files = out.files.get()] { leave_root_alone(*files); };
        out.notes = describe(*out.files);
        if (options.async)
            out.warning = "async is unsafe: what a client was told is written may be lost when power fails";
        const storage::file_backend* files = out.files.get();
        out.metrics.push_back(
            context.metrics.add({"verbena_posixfs_unkept_files_total",
                                 "Open files that posixfs had no descriptor for, by what became of them.",
                                 metric_type::counter,
                                 "files",
                                 {"export", "outcome"},
                                 max_series * 3},
                                [label = context.label, files](metric_sink& to) {
                                    const open_file_counters c = counters_of(*files);
                                    to.value({label, "closed"}, double(c.closed));
                                    to.value({label, "lost"}, double(c.lost));
                                    to.value({label, "refused"}, double(c.refused));
                                }));
        out.metrics.push_back(
            context.metrics.add({"verbena_posixfs_unseen_locks_total",
                                 "Locks of clients that processes of this host do not see, by why.",
                                 metric_type::counter,
                                 "locks",
                                 {"export", "reason"},
                                 max_series * unseen_lock_counters::reasons},
                                [label = context.label, files](metric_sink& to) {
                                    const unseen_lock_counters c = unseen_locks_of(*files);
                                    constexpr std::array<const char*, unseen_lock_counters::reasons> names = {
                                        "no_room", "unsupported", "not_permitted", "limit", "failed"};
                                    for (std::size_t i = 0; i < names.size(); ++i)
                                        to.value({label, names[i]}, double(c.counts[i]));
                                }));
        out.tells_callers_apart = takes_callers_rights();
        out.local_tree = values.text("directory");
        out.as_process = ::geteuid() != 0 || !takes_callers_rights();
        return out;
    }
};

} // namespace

} // namespace verbena::posixfs

const verbena::module_descriptor verbena::modules::posixfs = {
    .name = "posixfs",
    .version = VERBENA_VERSION,
    .summary = "a folder of this host, with the rights of each caller",
    .create = []() -> std::unique_ptr<module> { return std::make_unique<posixfs::posixfs_module>(); },
};
