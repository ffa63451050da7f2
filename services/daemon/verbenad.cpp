// SPDX-License-Identifier: Apache-2.0
// verbenad: a service made of the modules that were built in, told by a command line or a file what to do.
#include "bundled_modules.hpp"
#include "command_line.hpp"

#include "../standard_output.hpp"

#include <verbena/core/module/start_error.hpp>
#include <verbena/core/printable.hpp>
#include <verbena/core/queued_log.hpp>
#include <verbena/services/config_file.hpp>
#include <verbena/services/service.hpp>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace {

int finish(int status)
{
    if (const verbena::printed output = verbena::flush_standard_output(); output.lost)
        throw std::runtime_error(output.message());
    return status;
}

// What the words of the command line ask for.
int run(verbena::service& service, int argc, char** argv)
{
    using namespace verbena::daemon;
    for (const verbena::module_descriptor* m : bundled_modules())
        service.modules().add(*m);
    parsed_command_line line = parse_command_line(argc, argv, service);
    if (!line.wanted)
        return finish(line.exit_status);
    switch (line.wanted->kind) {
    case command_kind::modules:
        verbena::print("%s", list_of_modules(service.modules()).c_str());
        return finish(0);
    case command_kind::check_module: return finish(check_modules(line.wanted->files));
    case command_kind::check:
    case command_kind::serve: break;
    }
    if (!line.wanted->file.empty())
        service.load(line.wanted->file);
    service.set(std::move(line.wanted->settings));
    service.configure();
    if (line.wanted->kind == command_kind::check) {
        if (!line.wanted->quiet)
            verbena::print("%s", to_toml(service.effective()).c_str());
        return finish(0);
    }
    return service.run();
}

// In the journal as an error, and, of a service that has started, behind what it logged.
void complain(const std::string& what)
{
    (void)verbena::write_to_log(verbena::log_level::error, "verbenad: " + what + '\n');
}

int run_and_complain(verbena::service& service, int argc, char** argv)
{
    try {
        return run(service, argc, argv);
    } catch (const verbena::start_error& e) { // another start may do better
        std::fprintf(stderr, "verbenad: %s\n", verbena::printable_lines(e.what()).c_str());
        return 1;
    } catch (const verbena::config_error& e) {
        complain(verbena::printable_lines(e.what()));
        return 2;
    } catch (const std::exception& e) {
        complain(verbena::printable_lines(e.what()));
        return 1;
    } catch (...) {
        complain("a module threw something that is no std::exception");
        return 1;
    }
}

} // namespace

int main(int argc, char** argv)
{
    verbena::service service("verbenad", VERBENA_VERSION);
    const int status = run_and_complain(service, argc, argv);
    // A call that does not return keeps threads that can't be waited for. The static objects that they use must not be
    // destroyed.
    if (!service.unfinished().empty()) {
        verbena::flush_log();
        std::fflush(stdout);
        std::_Exit(status);
    }
    return status;
}
