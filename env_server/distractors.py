"""Tools of other domains, to be shown among those of an environment: none is of any use there.

A call to one is checked like any other, is answered with an error, and changes nothing.
"""

from __future__ import annotations

from typing import Literal, NoReturn

from env_server.tools import Tool, ToolError, tool


class _Elsewhere:
    """Plausible tools that belong to no environment of ours."""

    @tool
    def book_flight(self, origin: str, destination: str, day: str) -> NoReturn:
        """Books a seat on the cheapest flight of a day.

        Args:
            origin: City to leave from.
            destination: City to fly to.
            day: As YYYY-MM-DD.
        """
        _refuse()

    @tool
    def book_table(self, restaurant: str, guests: int, time: str) -> NoReturn:
        """Books a table at a restaurant.

        Args:
            restaurant: Its name.
            guests: How many come.
            time: As HH:MM, today.
        """
        _refuse()

    @tool
    def call_taxi(self, pickup: str) -> NoReturn:
        """Sends a taxi to a place.

        Args:
            pickup: Street and number.
        """
        _refuse()

    @tool
    def convert_currency(self, amount: float, source: str, target: str) -> NoReturn:
        """Converts an amount of money at the rate of today.

        Args:
            amount: How much.
            source: Code of its currency, such as EUR.
            target: Code of the wanted currency.
        """
        _refuse()

    @tool
    def create_event(self, title: str, start: str, minutes: int) -> NoReturn:
        """Puts an event into the calendar.

        Args:
            title: What it is called.
            start: As YYYY-MM-DD HH:MM.
            minutes: How long it takes.
        """
        _refuse()

    @tool
    def delete_file(self, path: str) -> NoReturn:
        """Deletes a file for good.

        Args:
            path: Where it is.
        """
        _refuse()

    @tool
    def describe_image(self, url: str) -> NoReturn:
        """Says what can be seen in a picture.

        Args:
            url: Where it is.
        """
        _refuse()

    @tool
    def find_recipe(self, ingredients: list[str]) -> NoReturn:
        """Finds dishes that can be cooked from what is there.

        Args:
            ingredients: What there is.
        """
        _refuse()

    @tool
    def get_directions(
        self, origin: str, destination: str, mode: Literal["walk", "bike", "car", "transit"]
    ) -> NoReturn:
        """Describes the way from one place to another.

        Args:
            origin: Where it begins.
            destination: Where it ends.
            mode: How to travel.
        """
        _refuse()

    @tool
    def get_forecast(self, city: str, days: int) -> NoReturn:
        """Forecasts the weather of the coming days.

        Args:
            city: Where.
            days: How many.
        """
        _refuse()

    @tool
    def get_stock_quote(self, symbol: str) -> NoReturn:
        """Tells what a share costs on the exchange.

        Args:
            symbol: Its ticker symbol.
        """
        _refuse()

    @tool
    def list_meetings(self, day: str) -> NoReturn:
        """Lists the meetings of a day.

        Args:
            day: As YYYY-MM-DD.
        """
        _refuse()

    @tool
    def lookup_word(self, word: str) -> NoReturn:
        """Explains a word from the dictionary.

        Args:
            word: The word.
        """
        _refuse()

    @tool
    def open_ticket(self, title: str, priority: Literal["low", "normal", "high"]) -> NoReturn:
        """Opens a ticket for the people who look after computers.

        Args:
            title: What is wrong.
            priority: How urgent it is.
        """
        _refuse()

    @tool
    def play_music(self, title: str) -> NoReturn:
        """Plays a piece of music.

        Args:
            title: What it is called.
        """
        _refuse()

    @tool
    def read_sensor(self, room: str) -> NoReturn:
        """Reads temperature and humidity of a room.

        Args:
            room: Its name.
        """
        _refuse()

    @tool
    def run_backup(self) -> NoReturn:
        """Backs all documents up, at once."""
        _refuse()

    @tool
    def search_news(self, topic: str) -> NoReturn:
        """Finds what newspapers have written about something this week.

        Args:
            topic: About what.
        """
        _refuse()

    @tool
    def send_message(self, recipient: str, text: str) -> NoReturn:
        """Sends a text message to a phone.

        Args:
            recipient: Number of the phone.
            text: What to say.
        """
        _refuse()

    @tool
    def set_alarm(self, time: str) -> NoReturn:
        """Sets an alarm.

        Args:
            time: As HH:MM.
        """
        _refuse()

    @tool
    def set_thermostat(self, room: str, degrees: float) -> NoReturn:
        """Sets how warm a room shall be.

        Args:
            room: Its name.
            degrees: In degrees Celsius.
        """
        _refuse()

    @tool
    def summarize_page(self, url: str) -> NoReturn:
        """Sums a web page up in three sentences.

        Args:
            url: Where it is.
        """
        _refuse()

    @tool
    def translate_text(self, text: str, language: str) -> NoReturn:
        """Translates a text.

        Args:
            text: The text.
            language: Into which language.
        """
        _refuse()

    @tool
    def water_plants(self, minutes: int) -> NoReturn:
        """Turns the sprinklers of the garden on.

        Args:
            minutes: For how long.
        """
        _refuse()


def _refuse() -> NoReturn:
    raise ToolError("this has nothing to do with the goal; nothing was done")


DISTRACTORS: tuple[Tool, ...] = tuple(
    method.__tool__ for method in vars(_Elsewhere).values() if hasattr(method, "__tool__")
)
"""All of them, by name."""
