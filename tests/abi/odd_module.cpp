// SPDX-License-Identifier: Apache-2.0
// A module that goes wrong wherever it is told to: when it is made by the variable VERBENA_ODD, later by its setting `way`.
#include <verbena/core/module/loadable.hpp>
#include <verbena/protocols/rpc/module.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace {

using namespace verbena;

class null_program final : public rpc::program {
public:
    explicit null_program(std::uint32_t low = 1, std::uint32_t high = 1) : low_(low), high_(high) {}
    std::uint32_t number() const noexcept override { return 0x20000099; }
    std::uint32_t low_version() const noexcept override { return low_; }
    std::uint32_t high_version() const noexcept override { return high_; }
    std::string_view name() const noexcept override { return "odd"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t) const noexcept override { return "NULL"; }
    bool non_idempotent(std::uint32_t, std::uint32_t) const noexcept override { return false; }
    task<rpc::outcome> serve(rpc::call&) override { co_return rpc::outcome::success; }

private:
    std::uint32_t low_;
    std::uint32_t high_;
};

class odd_module final : public rpc::program_module {
public:
    std::vector<setting> settings() const override
    {
        return {setting::word("way",
                              {"none", "configure", "prepare", "start", "programs", "listening", "number",
                               "stop_stalls", "logic", "no_program", "null_program", "program_twice",
                               "other_version", "many_versions"},
                              "none", "Where it goes wrong")};
    }
    std::vector<std::string> default_listeners() const override { return {"tcp://127.0.0.1:0"}; }
    void configure(setting_values& values, module_table&) override
    {
        way_ = values.text("way");
        fail("configure");
        if (way_ == "logic")
            (void)values.number("nobody_declared_this");
    }
    void prepare() override { fail("prepare"); }
    void start(module_host&) override
    {
        fail("start");
        if (way_ == "number")
            throw 7;
    }
    std::vector<std::unique_ptr<rpc::program>> make_programs(shard& s) override
    {
        if (s.index() == 1)
            fail("programs"); // half-way
        std::vector<std::unique_ptr<rpc::program>> programs;
        if (way_ == "no_program")
            return programs;
        programs.push_back(std::make_unique<null_program>());
        if (way_ == "null_program")
            programs.push_back(nullptr);
        if (way_ == "program_twice")
            programs.push_back(std::make_unique<null_program>(0, 3));
        if (way_ == "other_version")
            programs.push_back(std::make_unique<null_program>(2, 3));
        if (way_ == "many_versions")
            programs.push_back(std::make_unique<null_program>(2, 0xffffffff));
        return programs;
    }
    std::string listening(std::span<const listen_place> places) override
    {
        fail("listening");
        return program_module::listening(places);
    }
    void stop() noexcept override
    {
        std::fputs("odd: stopped\n", stderr);
        while (way_ == "stop_stalls")
            std::this_thread::sleep_for(std::chrono::seconds(1));
    }

private:
    void fail(std::string_view where) const
    {
        if (way_ == where)
            throw std::runtime_error("odd: " + std::string(where) + " fails");
    }
    std::string way_;
};

std::string_view told()
{
    const char* way = std::getenv("VERBENA_ODD");
    return way == nullptr ? "" : way;
}

std::unique_ptr<module> create()
{
    if (told() == "create_throws")
        throw std::runtime_error("odd: no disk");
    if (told() == "create_throws_a_number")
        throw 7;
    if (told() == "create_returns_nothing")
        return nullptr;
    return std::make_unique<odd_module>();
}

constexpr const char* needs_nobody[] = {"nobody_has_this", nullptr};
constexpr const char* needs_itself[] = {"odd", nullptr};

// Made when it is asked for, as VERBENA_ODD then stands.
const module_descriptor& describe()
{
    static module_descriptor d;
    d.name = told() == "bad_name" ? "Odd" : told() == "reserved_name" ? "daemon" : "odd";
    d.version = "0.0.1";
    d.summary = "goes wrong wherever it is told to";
    d.create = &create;
    if (told() == "other_size")
        d.size = 8;
    if (told() == "needs_nobody")
        d.needs = needs_nobody;
    if (told() == "needs_itself")
        d.needs = needs_itself;
    return d;
}

} // namespace

#ifdef ODD_CALLS_NOBODY
namespace verbena {
int nobody_has_this(int);
}
extern "C" int verbena_test_nor_this();
extern "C" __attribute__((weak)) int verbena_test_this_may_be_missing();
int calls_nobody()
{
    return verbena::nobody_has_this(verbena_test_nor_this()) + (&verbena_test_this_may_be_missing != nullptr);
}
#endif

#ifndef ODD_ROLE
#define ODD_ROLE program
#endif
#define DECLARE_AS(role) VERBENA_MODULE(role, describe())
DECLARE_AS(ODD_ROLE);
