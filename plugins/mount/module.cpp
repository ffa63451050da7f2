// SPDX-License-Identifier: Apache-2.0
// The MOUNT protocol as a module, on the listeners of NFS.
#include <verbena/core/module/control.hpp>
#include <verbena/plugins/modules.hpp>

#include <verbena/protocols/nfs/server/served_exports.hpp>
#include <verbena/protocols/nfs/server/v3/mount.hpp>
#include <verbena/protocols/rpc/module.hpp>

#include <stdexcept>

namespace verbena::nfs::mount3 {

namespace {

class mount_module final : public rpc::program_module, public controlled {
public:
    std::vector<std::string> default_listeners() const override { return {}; }
    std::string_view served_with() const noexcept override { return "nfs"; }

    void start(module_host& host) override
    {
        served_ = host.modules().find<served_exports>("nfs");
        if (served_ == nullptr)
            throw std::logic_error("mount: the module nfs shows no exports");
    }
    std::vector<std::unique_ptr<rpc::program>> make_programs(shard& here) override
    {
        std::vector<std::unique_ptr<rpc::program>> programs;
        programs.push_back(std::make_unique<server>(served_->exports(), served_->key(), mounts_, &here));
        return programs;
    }
    std::vector<control_command> control_commands() override
    {
        control_command c;
        c.name = "mounts";
        c.help = "What clients of NFS version 3 have mounted, as far as they said so";
        c.columns = {"host", "path"};
        c.answer = [this](const control_arguments&) {
            control_answer all;
            for (mount_list::entry& e : mounts_.entries())
                all.rows.push_back({std::move(e.hostname), std::move(e.directory)});
            return all;
        };
        std::vector<control_command> commands;
        commands.push_back(std::move(c));
        return commands;
    }

private:
    const served_exports* served_ = nullptr;
    mount_list mounts_;
};

constexpr const char* needs[] = {"nfs", nullptr};

} // namespace

} // namespace verbena::nfs::mount3

const verbena::module_descriptor verbena::modules::mount = {
    .name = "mount",
    .version = VERBENA_VERSION,
    .summary = "MOUNT version 3, by which clients of NFS version 3 find exports",
    .needs = nfs::mount3::needs,
    .create = []() -> std::unique_ptr<module> { return std::make_unique<nfs::mount3::mount_module>(); },
};
