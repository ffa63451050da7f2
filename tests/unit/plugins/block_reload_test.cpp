// SPDX-License-Identifier: Apache-2.0
// What a reload changes of block devices: plans that are dropped and applied, and what needs a restart.
#include "../../../plugins/block/device_config.hpp"

#include <boost/test/unit_test.hpp>

#include "temporary_directory.hpp"

#include <verbena/core/metrics.hpp>
#include <verbena/core/module/control.hpp>
#include <verbena/core/module/module.hpp>
#include <verbena/core/module/reload.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/plugins/modules.hpp>

#include <exception>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <variant>
#include <vector>

BOOST_AUTO_TEST_SUITE(block_reload_test)

using namespace verbena;

namespace {

struct served final : module_host {
    explicit served(std::initializer_list<const char*> devices)
    {
        for (const module_descriptor* m :
             {&modules::block, &modules::fileblk, &modules::ramblk, &modules::limit})
            table.add(*m);
        block = table.find<module>("block");
        setting_values values = values_of(devices);
        block->configure(values, table);
        runtime_options o;
        o.shards = 2;
        rt = std::move(*runtime::start(o));
        block->start(*this);
        for (control_command& c : dynamic_cast<controlled&>(*block).control_commands())
            if (c.name == "devices")
                list = c.answer;
    }
    ~served()
    {
        rt->stop();
        block->stop();
    }
    setting_values values_of(std::initializer_list<const char*> devices) const
    {
        setting_values::value list_of{setting_values::value::tables{}};
        for (const char* text : devices)
            std::get<setting_values::value::tables>(list_of.data).push_back(block::parse_device(text));
        setting_values values;
        values.set("device", std::move(list_of));
        check(block->settings(), values, "block.");
        return values;
    }
    std::unique_ptr<reload_plan> plan(std::initializer_list<const char*> devices, bool looks_only = false)
    {
        setting_values values = values_of(devices);
        return dynamic_cast<reloadable&>(*block).plan_reload(values, table, looks_only);
    }
    /// "disk 8388608 rw *"
    std::vector<std::string> devices() const
    {
        std::vector<std::string> all;
        for (const control_row& row : list({}).rows) {
            std::string clients;
            for (const std::string& one : std::get<std::vector<std::string>>(row[6]))
                clients += ' ' + one;
            all.push_back(std::get<std::string>(row[0]) + ' ' +
                          std::to_string(std::get<std::uint64_t>(row[2])) +
                          (std::get<bool>(row[4]) ? " ro" : " rw") + clients);
        }
        return all;
    }
    // module_host
    runtime& shards() noexcept override { return *rt; }
    metric_registry& metrics() noexcept override { return registry; }
    module_table& modules() noexcept override { return table; }
    peer_shares& peers() noexcept override { return shares; }
    bool uses_rdma_devices() const noexcept override { return false; }
    const std::string& state_directory() override { return state; }

    metric_registry registry;
    std::unique_ptr<runtime> rt;
    peer_shares shares{peer_options()};
    std::string state;
    module_table table; // goes first
    module* block = nullptr;
    std::function<control_answer(const control_arguments&)> list;
};

using texts = std::vector<std::string>;

std::string told(const reload_plan& p)
{
    std::string all;
    for (const reload_change& c : p.changes)
        all += c.what + ": " + c.change + (c.needs_restart ? " (restart)" : "") + '\n';
    return all;
}

} // namespace

BOOST_AUTO_TEST_CASE(devices_come_and_go_and_are_for_others)
{
    served s({"disk=8M", "tape=1M,ro"});
    const texts before = {"disk 8388608 rw this host only", "tape 1048576 ro this host only"};
    BOOST_TEST((s.devices() == before));
    BOOST_TEST(told(*s.plan({"disk=8M", "tape=1M,ro"})) == "");
    {
        const auto dropped = s.plan({"disk=8M,clients=*", "more=2M"});
        const std::string what = told(*dropped);
        BOOST_TEST(what.find("device tape: removed\n") != what.npos, what);
        BOOST_TEST(what.find("device more: added\n") != what.npos, what);
        BOOST_TEST(what.find("device disk clients: ") != what.npos, what);
        BOOST_TEST(what.find("(restart)") == what.npos, what);
    }
    BOOST_TEST((s.devices() == before)); // it was not applied
    const auto plan = s.plan({"disk=8M,clients=*", "more=2M"});
    plan->apply();
    BOOST_TEST(plan->late.empty());
    const texts behind = {"disk 8388608 rw *", "more 2097152 rw this host only"};
    BOOST_TEST((s.devices() == behind));
    BOOST_TEST(told(*s.plan({"disk=8M,clients=*", "more=2M"})) == "");
    // And back, by the names that they had.
    s.plan({"disk=8M", "tape=1M,ro"})->apply();
    BOOST_TEST((s.devices() == before));
}

BOOST_AUTO_TEST_CASE(what_a_device_is_made_of_needs_a_restart)
{
    served s({"disk=8M", "tape=1M,ro"});
    const auto larger = s.plan({"disk=16M", "tape=1M,ro"});
    BOOST_TEST(told(*larger).find("(restart)") != std::string::npos, told(*larger));
    larger->apply();
    BOOST_TEST(s.devices()[0] == "disk 8388608 rw this host only");
    // It becomes read-only at once, and what it was opened for it may be again; the other one was opened to be read.
    s.plan({"disk=8M,ro", "tape=1M,ro"})->apply();
    BOOST_TEST(s.devices()[0] == "disk 8388608 ro this host only");
    const auto writable = s.plan({"disk=8M", "tape=1M"});
    const std::string what = told(*writable);
    BOOST_TEST(what.find("device tape read_only: ") != what.npos, what);
    BOOST_TEST(what.find("(restart)") != what.npos, what);
    writable->apply();
    const texts now = {"disk 8388608 rw this host only", "tape 1048576 ro this host only"};
    BOOST_TEST((s.devices() == now));
}

BOOST_AUTO_TEST_CASE(a_mistake_changes_nothing_and_a_look_makes_no_file)
{
    const suite::temporary_directory folder;
    const std::string disk = "img=" + (folder.path() / "disk").string() + ",size=1M";
    served s({"disk=8M"});
    BOOST_CHECK_THROW(s.plan({"disk=8M", "img=/nonexistent/file"}), std::exception);
    BOOST_CHECK_THROW(s.plan({"disk=8M,clients=nobody"}), config_error);
    BOOST_TEST(told(*s.plan({"disk=8M", disk.c_str()}, true)) == "device img: added\n");
    BOOST_TEST(!std::filesystem::exists(folder.path() / "disk"));
    BOOST_TEST(s.devices().size() == 1u);
    s.plan({"disk=8M", disk.c_str()})->apply();
    BOOST_TEST((std::filesystem::file_size(folder.path() / "disk") == 1u << 20));
    BOOST_TEST(s.devices().size() == 2u);
    // A removed one is closed, so that another may have the file.
    const auto removal = s.plan({"disk=8M"});
    removal->apply();
    BOOST_TEST(removal->late.empty());
    s.plan({"disk=8M", ("copy=" + (folder.path() / "disk").string()).c_str()})->apply();
    BOOST_TEST(s.devices().size() == 2u);
}

BOOST_AUTO_TEST_CASE(a_secret_of_a_device_stands_in_no_message)
{
    try {
        (void)block::parse_device("disk=8M,api_key=hunter2,rw=yes");
        BOOST_TEST(false);
    } catch (const config_error& e) {
        BOOST_TEST(std::string(e.what()).starts_with("--device disk=8M,api_key=(not shown),rw=yes: "),
                   e.what());
    }
    const setting_values values = block::parse_device("disk=8M,api_key=hunter2");
    BOOST_TEST(values.find("api_key")->option.ends_with("option api_key=(not shown)"));
}

BOOST_AUTO_TEST_SUITE_END()
